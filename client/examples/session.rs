//! Runs a graph on a server from Rust: a linear model is trained by gradients that this program computes.
//!
//! ```text
//! cargo run --release -p graphmill-client --example session -- model.pb grpc://localhost:2222
//! ```
//!
//! The graph has a placeholder `x` (a matrix of float), a placeholder `delta`, a variable with the initialiser `init`, an update
//! `update` that subtracts `delta`, and the product `y` of `x` and the variable.

use graphmill_client::{CallableOptions, Client, Result, Session, Step, from_array, load_graph};
use ndarray::{Array2, Ix2, arr2};
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
        let y = graphmill_client::to_array::<f32>(&answers[0])?.into_dimensionality::<Ix2>();
        let y =
            y.map_err(|error| graphmill_client::Status::new(graphmill_client::Code::Internal, error.to_string()))?;
        let gradient = x.t().dot(&(y - &wanted)) * (2.0 / x.nrows() as f32);
        session.run(&Step::new().feed("delta", from_array(&(gradient * RATE))?).target("update")).await?;
    }
    predict.release().await?;
    let ends = session.run(&Step::new().feed("x", from_array(&Array2::<f32>::eye(2))?).fetch("y")).await?;
    let weights = ends.array::<f32>("y")?.into_dimensionality::<Ix2>();
    weights.map_err(|error| graphmill_client::Status::new(graphmill_client::Code::Internal, error.to_string()))
}

async fn example(graph: &str, target: &str) -> Result<()> {
    let client = Client::new(target)?.within(Duration::from_secs(60));
    client.ready().await?;
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
