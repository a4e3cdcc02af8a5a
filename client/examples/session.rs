//! Runs a graph on a server from Rust: a linear model is trained by gradients that this program computes.
//!
//! ```text
//! cargo run --release -p graphmill-client --example session -- model.pb grpc://localhost:2222
//! ```
//!
//! The graph has a placeholder `x` (a matrix of float), a placeholder `delta`, a variable with the initialiser `init`, an update
//! `update` that subtracts `delta`, and the product `y` of `x` and the variable.

use graphmill_client::{
    CallableOptions, Client, Code, Result, Session, Status, Step, from_array, load_graph, to_array,
};
use ndarray::{Array2, ArrayD, arr2};
use std::process::ExitCode;
use std::time::Duration;

const STEPS: usize = 200;
const RATE: f32 = 0.1;

async fn train(session: &Session) -> Result<Array2<f32>> {
    let x = arr2(&[[1f32, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, -1.0]]);
    let wanted = x.dot(&arr2(&[[3f32], [-2.0]]));
    session.run(&Step::new().target("init")).await?;
    // A prepared step costs less than one by names.
    let options = CallableOptions { feed: vec!["x:0".into()], fetch: vec!["y:0".into()], ..Default::default() };
    let predict = session.callable(options).await?;
    for _ in 0..STEPS {
        let answers = predict.run(&[from_array(&x)?]).await?;
        let y = matrix(to_array(&answers[0])?)?;
        let gradient = x.t().dot(&(y - &wanted)) * (2.0 / x.nrows() as f32);
        session.run(&Step::new().feed("delta", from_array(&(gradient * RATE))?).target("update")).await?;
    }
    predict.release().await?;
    // A step in parts: here all values are there at once, but they could come one after the other.
    let parts = session.partial_run(&["x"], &["y"], &[]).await?;
    parts.run(&Step::new().feed("x", from_array(&Array2::<f32>::eye(2))?)).await?;
    matrix(parts.run(&Step::new().fetch("y")).await?.array("y")?)
}

fn matrix(array: ArrayD<f32>) -> Result<Array2<f32>> {
    array.into_dimensionality().map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))
}

async fn example(graph: &str, target: &str) -> Result<()> {
    let client = Client::new(target)?.within(Duration::from_secs(60));
    client.ready().await?;
    if client.devices().await?.is_empty() {
        println!("{target} has no devices");
    }
    let session = client.session(load_graph(graph)?, Default::default()).await?;
    let weights = train(&session).await?;
    println!("{} {}", weights[[0, 0]], weights[[1, 0]]);
    // Errors have TensorFlow's codes and texts.
    if let Err(error) = session.run(&Step::new().fetch("y")).await {
        println!("{}", error.code().name());
    }
    session.close().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.as_slice() {
        [graph, target] => example(graph, target).await,
        _ => {
            eprintln!("usage: session GRAPH grpc://HOST:PORT");
            return ExitCode::FAILURE;
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
