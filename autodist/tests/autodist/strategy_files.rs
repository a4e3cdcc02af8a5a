//! Strategy files have AutoDist's bytes and are safe to read.

use graphmill_autodist::strategy::{
    AllReduce, Communication, Compressor, Layout, ParameterServer, Part, Partitioner, Split, Strategy, Synchronizer,
    VariableStrategy, read, write,
};
use graphmill_tensor::Code;
use std::fs;

/// What AutoDist's own messages encode for [`sample`].
const SAMPLE: &str = "0a163230323030313031543030303030304d303030303030122f2f746d702f6175746f646973742f737472617465676965732f323032303031303154303030303030\
                      4d3030303030301a190a03573a3012120a0e31302e302e302e313a4350553a3018011a070a03623a301a001a4c0a05656d623a302203322c312a260a0c65\
                      6d622f706172745f303a3012160a0e31302e302e302e313a4350553a301001180120032a160a0c656d622f706172745f313a301a0608011002180722200a0e31\
                      302e302e302e313a4750553a300a0e31302e302e302e323a4750553a30";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn server(local_replication: bool, staleness: u32) -> Synchronizer {
    let destination = "10.0.0.1:CPU:0".to_owned();
    Synchronizer::ParameterServer(ParameterServer { destination, local_replication, sync: true, staleness })
}

fn sample() -> Strategy {
    let reduce =
        |communication, compressor, group| Synchronizer::AllReduce(AllReduce { communication, compressor, group });
    let part = |name: &str, synchronizer| Part { name: name.to_owned(), synchronizer };
    let variable = |name: &str, layout| VariableStrategy { variable: name.to_owned(), layout };
    let split = Split {
        partitioner: Partitioner::new(2, 0, 2).unwrap(),
        parts: vec![
            part("emb/part_0:0", server(true, 3)),
            part("emb/part_1:0", reduce(Communication::Nccl, Compressor::HorovodErrorFeedback, 7)),
        ],
    };
    Strategy {
        id: "20200101T000000M000000".to_owned(),
        path: "/tmp/autodist/strategies/20200101T000000M000000".to_owned(),
        variables: vec![
            variable("W:0", Layout::Whole(server(false, 0))),
            variable("b:0", Layout::Whole(reduce(Communication::Auto, Compressor::None, 0))),
            variable("emb:0", Layout::Split(split)),
        ],
        replicas: vec!["10.0.0.1:GPU:0".to_owned(), "10.0.0.2:GPU:0".to_owned()],
    }
}

#[test]
fn bytes_are_autodists() {
    let expected = bytes(SAMPLE);
    assert_eq!(expected.len(), 221);
    assert_eq!(sample().encode(), expected);
    assert_eq!(Strategy::decode(&expected, |_| None).unwrap(), sample());
}

#[test]
fn files_are_whole_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut strategy = sample();
    let path = write(&mut strategy, &folder.path().join("made/here")).unwrap();
    assert_eq!(strategy.path, path.to_string_lossy());
    assert_eq!(read(&path).unwrap(), strategy);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(error.code(), Code::DataLoss, "{length}: {error}");
        assert!(error.message().contains(&*path.to_string_lossy()));
    }
    let missing = read(&folder.path().join("none")).unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    // A file stands where the folder should be.
    let error = write(&mut strategy, &path).unwrap_err();
    assert!(error.message().contains("GRAPHMILL_AUTODIST_DIR"), "{error}");
}

#[test]
fn files_from_before_april_2020_are_read_with_their_graph() {
    // Two destinations of one variable.
    let node = bytes("0a03573a3012200a0e31302e302e302e313a4350553a300a0e31302e302e302e323a4350553a30");
    let mut file = vec![0x1a, node.len() as u8];
    file.extend(&node);
    file.extend(bytes("2200"));
    let strategy = Strategy::decode(&file, |_| Some(2)).unwrap();
    let Layout::Split(split) = &strategy.variables[0].layout else { panic!("{strategy:?}") };
    assert_eq!(split.partitioner.to_string(), "2,1");
    let names: Vec<&str> = strategy.variables[0].leaves().map(|(name, _)| name).collect();
    assert_eq!(names, ["W/part_0:0", "W/part_1:0"]);
    let error = Strategy::decode(&file, |_| None).unwrap_err();
    assert!(error.message().contains("together with its graph"), "{error}");
}

#[test]
fn entries_that_make_no_sense_are_refused() {
    for (node, problem) in [
        ("0a03573a30", "no synchronizer"),
        ("0a03573a301200", "exactly one reduction destination"),
        ("0a03573a3012140a0e31302e302e302e313a4350553a3010012003", "needs sync"),
        ("0a03573a3012030a0161 22 03 322c31", "a synchronizer of its own"),
        ("0a03573a30 2203 322c31", "makes 2 parts, but 0"),
        ("0a03573a30 2203 312c31", "no axis is split"),
        ("0a03573a30 1a02 0809", "no all-reduce spec of number 9"),
        ("0a03573a30 1a02 1009", "no compressor of number 9"),
    ] {
        let node = bytes(&node.replace(' ', ""));
        let mut file = vec![0x1a, node.len() as u8];
        file.extend(&node);
        file.extend([0x22, 0]);
        let error = Strategy::decode(&file, |_| None).unwrap_err();
        assert!(error.message().contains(problem), "{problem}: {error}");
    }
    let old = Strategy::decode(&bytes("1a090a03573a301a02100322 00".replace(' ', "").as_str()), |_| None).unwrap();
    let (_, synchronizer) = old.variables[0].leaves().next().unwrap();
    assert!(matches!(synchronizer, Synchronizer::AllReduce(AllReduce { compressor: Compressor::PowerSgd, .. })));
}
