use super::*;

const SSH: &str = "ssh:\n  conf:\n    username: me\n    key_file: /home/me/.ssh/id_rsa\n    port: 12345\n    shared_envs: {LEVEL: 3}\n";

fn names(devices: Vec<super::super::DeviceName>) -> Vec<String> {
    devices.iter().map(ToString::to_string).collect()
}

fn parse_error(text: &str) -> String {
    parse(text).unwrap_err().message().to_owned()
}

#[test]
fn devices_come_in_the_order_of_the_file() {
    let text = format!(
        "nodes:\n  - address: 10.0.0.2\n    cpus: [2, 0, 1, 2]\n    ssh_config: conf\n  - address: 10.0.0.1\n    chief: true\n    \
         gpus: [1, 0]\n    cpus: [0, 5]\n    network_bandwidth: 123\n{SSH}"
    );
    let spec = parse(&text).unwrap();
    assert_eq!(
        names(spec.devices()),
        ["10.0.0.2:CPU:0", "10.0.0.2:CPU:1", "10.0.0.2:CPU:2", "10.0.0.1:CPU:0", "10.0.0.1:GPU:0", "10.0.0.1:GPU:1"]
    );
    assert_eq!(
        names(spec.replicas()),
        ["10.0.0.1:GPU:0", "10.0.0.1:GPU:1", "10.0.0.2:CPU:0", "10.0.0.2:CPU:1", "10.0.0.2:CPU:2"]
    );
    assert_eq!(spec.destinations().len(), 4);
    assert_eq!(spec.chief().name, "10.0.0.1");
    assert_eq!(spec.nodes()[0].network_bandwidth, 1.0);
    assert_eq!(spec.nodes()[1].network_bandwidth, 123.0);
    assert_eq!(spec.warnings(), ["node 2 has gpus, so of its cpus only 0 is used"]);
    let ssh = spec.ssh_settings(&spec.nodes()[0]).unwrap();
    assert_eq!((ssh.port, ssh.username.as_str()), (12345, "me"));
    assert_eq!(ssh.shared_envs["LEVEL"], "3");
    assert_eq!(ssh.shared_envs["TF_CPP_MIN_LOG_LEVEL"], "0");
}

#[test]
fn a_single_node_is_chief() {
    let spec = parse("nodes:\n  - address: localhost\n    chief: false\n    gpus: [0, 1]\n    colour: red\n").unwrap();
    assert_eq!(spec.chief().name, "localhost");
    assert_eq!(names(spec.replicas()), ["localhost:GPU:0", "localhost:GPU:1"]);
    assert_eq!(spec.warnings(), ["\"colour\" of node 1 is not a known key and has no effect"]);
}

#[test]
fn nodes_may_share_a_host() {
    let spec = parse(
        "launcher: running\nnodes:\n  - {address: 127.0.0.1, port: 2222, chief: true}\n  - {address: 127.0.0.1, port: 2223}\n",
    )
    .unwrap();
    assert_eq!(names(spec.replicas()), ["127.0.0.1:2222:CPU:0", "127.0.0.1:2223:CPU:0"]);
    assert_eq!(spec.launcher(), Launcher::Running);
    let device = "127.0.0.1:2223:CPU:0".parse().unwrap();
    assert_eq!(spec.node_of(&device).unwrap().port, Some(2223));
    assert!(spec.node_of(&"127.0.0.1:2223:GPU:0".parse().unwrap()).is_none());
}

#[test]
fn errors_say_what_to_do() {
    let two = |first: &str, second: &str| format!("nodes:\n  - {{{first}}}\n  - {{{second}}}\n{SSH}");
    for (text, problem) in [
        ("nodes: [", "not valid YAML"),
        ("just text", "the file must be a mapping"),
        ("ssh: {}", "at least one node"),
        ("nodes: []", "at least one node"),
        ("nodes: [{chief: true}]", "node 1 has no address"),
        ("nodes: [{address: 10.0.0.300}]", "\"10.0.0.300\" is neither"),
        ("nodes: [{address: a, gpus: 2}]", "gpus of node 1 is 2; it must be a list"),
        ("nodes: [{address: a, gpus: [-1]}]", "it must be a list of device numbers"),
        ("nodes: [{address: a, port: 70000}]", "1 to 65535"),
        ("nodes: [{address: a, chief: maybe}]", "true or false"),
        ("nodes: [{address: a, network_bandwidth: fast}]", "a number of at least 0"),
        ("nodes: [{address: a, task: 1}]", "the tasks of the nodes"),
        ("launcher: magic\nnodes: [{address: a}]", "write ssh, external or running"),
        ("launcher: running\nnodes: [{address: a}]", "a running server needs one"),
        (&two("address: 10.0.0.1, ssh_config: conf", "address: 10.0.0.2, ssh_config: conf"), "one node must be chief"),
        (&two("address: 10.0.0.1, chief: true", "address: 10.0.0.2, chief: true"), "both chief"),
        (&two("address: localhost, chief: true", "address: 10.0.0.2, ssh_config: conf"), "cannot be reached"),
        (&two("address: localhost, chief: true", "address: 127.0.0.1"), "a port of its own"),
        (&two("address: localhost, chief: true, port: 9", "address: 127.0.0.1, port: 9"), "two nodes have port 9"),
        (&two("address: 10.0.0.1, chief: true", "address: 10.0.0.2"), "has no ssh_config"),
        (&two("address: 10.0.0.1, chief: true", "address: 10.0.0.2, ssh_config: other"), "does not describe"),
    ] {
        let error = parse_error(text);
        assert!(error.contains(problem), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
