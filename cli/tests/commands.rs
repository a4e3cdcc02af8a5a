//! The commands as a user runs them.
// Helpers of tests fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const GRAPHMILL: &str = env!("CARGO_BIN_EXE_graphmill");

/// A server that ends with the test.
struct Serving {
    child: Child,
    target: String,
}

impl Serving {
    fn start(flags: &[&str]) -> Serving {
        let mut child = Command::new(GRAPHMILL)
            .arg("serve")
            .args(flags)
            .args(["--log-level", "warn", "--intra-op-threads", "1", "--inter-op-threads", "1"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let target = line.strip_prefix("graphmill listening on ").expect("the ready line").trim().to_owned();
        Serving { child, target }
    }

    fn port(&self) -> &str {
        self.target.rsplit_once(':').unwrap().1
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn graphmill(args: &[&str]) -> Output {
    Command::new(GRAPHMILL).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_server_lists_its_devices() {
    let server = Serving::start(&[
        "--port",
        "0",
        "--job",
        "ps",
        "--task",
        "2",
        "--cluster",
        "ps|2=b:2",
        "--device-count",
        "CPU=2",
    ]);
    assert!(server.target.starts_with("grpc://localhost:"));
    let listed = graphmill(&["devices", &server.target, "--json"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let devices: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let names: Vec<_> = devices.as_array().unwrap().iter().map(|device| device["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["/job:ps/replica:0/task:2/device:CPU:0", "/job:ps/replica:0/task:2/device:CPU:1"]);
    let listed = graphmill(&["devices", &server.target]);
    assert!(text(&listed.stdout).contains("/job:ps/replica:0/task:2/device:CPU:0  CPU"));
}

#[test]
fn a_taken_port_is_one_line_that_says_what_to_do() {
    let server = Serving::start(&["--port", "0"]);
    let second = graphmill(&["serve", "--port", server.port()]);
    assert_eq!(second.status.code(), Some(1));
    let error = text(&second.stderr);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("taken") && error.contains("--port"), "{error}");
    assert!(second.stdout.is_empty());
}

#[test]
fn wrong_settings_are_errors() {
    for args in [
        &["serve", "--job", "x", "--cluster", "ps=a:1"][..],
        &["serve", "--port", "0", "--host", "no such host"],
        &["serve", "--log-level", "=loud"],
        &["devices", "grpc://localhost:1"],
        &["devices", "http://x/y"],
    ] {
        let output = graphmill(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).starts_with("graphmill: "), "{args:?}: {}", text(&output.stderr));
    }
    for args in [
        &["serve", "--cluster", "ps"][..],
        &["serve", "--port", "70000"],
        &["serve", "--device-count", "CPU=0"],
        &["serve", "--device-count", "GPU=1"],
        &["serve", "--device-count", "2"],
        &["nonsense"],
    ] {
        assert_eq!(graphmill(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_signal_ends_the_server() {
    for signal in ["TERM", "INT"] {
        let mut server = Serving::start(&["--port", "0"]);
        let pid = server.child.id().to_string();
        let start = Instant::now();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let status = server.child.wait().unwrap();
        assert_eq!(status.code(), Some(0));
        assert!(start.elapsed() < Duration::from_secs(10));
        let mut rest = String::new();
        server.child.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
    }
}

#[test]
fn ops_are_listed_in_three_forms() {
    let json: serde_json::Value = serde_json::from_slice(&graphmill(&["ops", "--json"]).stdout).unwrap();
    let ops = json["ops"].as_array().unwrap();
    assert!(json["implemented"].as_u64().unwrap() as usize <= ops.len());
    let matmul = ops.iter().find(|op| op["op"] == "MatMul").unwrap();
    assert!(matmul["types"]["T"].as_array().unwrap().contains(&"float".into()));
    assert!(text(&graphmill(&["ops", "--markdown"]).stdout).contains("| `MatMul` | T: "));
    assert!(text(&graphmill(&["ops"]).stdout).lines().any(|line| line.starts_with("MatMul ")));
}

#[test]
fn help_has_examples() {
    for command in ["serve", "run", "devices", "ops"] {
        assert!(text(&graphmill(&[command, "--help"]).stdout).contains("Examples:"), "{command}");
    }
}
