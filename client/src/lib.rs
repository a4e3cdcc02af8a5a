//! Sessions of TensorFlow's distributed runtime from Rust: on a server of graphmill or of TensorFlow, or in this process.
//!
//! ```no_run
//! use graphmill_client::{Client, Step, from_array, load_graph};
//! use ndarray::arr2;
//!
//! # async fn example() -> graphmill_client::Result<()> {
//! let client = Client::new("grpc://localhost:2222")?.within(std::time::Duration::from_secs(60));
//! let session = client.session(load_graph("model.pb")?, Default::default()).await?;
//! let step = Step::new().feed("x", from_array(&arr2(&[[1f32, 2.0]]))?).fetch("y");
//! let y = session.run(&step).await?.array::<f32>("y")?;
//! session.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::in_process`] runs the same sessions without a server. [`SavedModel`] opens exported models by their signatures. Errors are
//! a [`Status`] with TensorFlow's code and text.

mod array;
mod client;
mod graph_file;
mod saved_model;
mod session;
mod step;
mod transport;

pub use array::{from_array, from_string_array, to_array, to_string_array};
pub use client::Client;
pub use graph_file::{load_graph, load_meta_graph};
pub use graphmill_cluster::ServerConfig;
pub use graphmill_tensor::{Code, DType, Element, Result, Shape, Status, Tensor};
pub use graphmill_wire::tensorflow::{CallableOptions, ConfigProto, GraphDef, MetaGraphDef, RunOptions};
pub use saved_model::{DEFAULT_SIGNATURE, SERVE, SavedModel, Signature};
pub use session::{Callable, PartialRun, Session};
pub use step::{Outputs, Step};
