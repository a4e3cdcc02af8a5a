//! `AutoShardDataset`: the part of a dataset that one of several workers gets. A dataset that reads files is rewritten such that each
//! worker reads files of its own; any other is made whole by each worker, which keeps every n-th element.

use crate::dataset::{Dataset, dataset_tensor, scalar, tensor_dataset};
use crate::recipe::{Recipe, recipe_of};
use graphmill_graph::{Attrs, FunctionLibrary};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Code, Result, Tensor, internal, invalid_argument, not_found, unimplemented_op};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value as AttrKind};
use graphmill_wire::tensorflow::{NodeDef, TensorShapeProto};
use prost::Message;

/// Datasets that read the files that their first input names.
const READERS: [&str; 4] = ["ArrayRecordDataset", "FixedLengthRecordDataset", "TextLineDataset", "TFRecordDataset"];
/// Datasets of several datasets, each of which is divided.
const MERGING: [&str; 2] = ["ConcatenateDataset", "ZipDataset"];
/// Datasets that call a function which makes datasets.
const CALLING: [&str; 5] = [
    "ExperimentalParallelInterleaveDataset",
    "FlatMapDataset",
    "InterleaveDataset",
    "LegacyParallelInterleaveDataset",
    "ParallelInterleaveDataset",
];
/// Datasets of one dataset, which is divided in their place.
const PASSING: [&str; 29] = [
    "AssertNextDataset",
    "BatchDataset",
    "CacheDataset",
    "ExperimentalMapAndBatchDataset",
    "ExperimentalParseExampleDataset",
    "ExperimentalRebatchDataset",
    "FilterDataset",
    "FinalizeDataset",
    "MapAndBatchDataset",
    "MapDataset",
    "MaxIntraOpParallelismDataset",
    "ModelDataset",
    "OptimizeDataset",
    "OptionsDataset",
    "PaddedBatchDataset",
    "ParallelBatchDataset",
    "ParallelMapDataset",
    "ParseExampleDataset",
    "PrefetchDataset",
    "PrivateThreadPoolDataset",
    "ReduceDataset",
    "RebatchDataset",
    "RepeatDataset",
    "ShardDataset",
    "ShuffleAndRepeatDataset",
    "ShuffleDataset",
    "SkipDataset",
    "TakeDataset",
    "WindowDataset",
];
/// Datasets that cannot be divided by files.
const SOURCES: [&str; 5] =
    ["GeneratorDataset", "RangeDataset", "SparseTensorsSliceDataset", "TensorDataset", "TensorSliceDataset"];
/// Datasets behind which elements are divided, so that they count what a worker gets.
const TRAILING: [&str; 3] = ["PrefetchDataset", "OptionsDataset", "FinalizeDataset"];
/// The number of shards of a `ShardDataset` that stands for that of the workers.
const HINT: i64 = -1;
/// Functions that call each other are followed as deep as this.
const DEPTH: u32 = 100;

pub(crate) fn register(registry: &mut Registry) {
    for op in ["AutoShardDataset", "ExperimentalAutoShardDataset"] {
        registry.op(op).kernel(AutoShard::new);
    }
}

/// The values of `auto_shard_policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Off,
    Auto,
    File,
    Data,
    Hint,
}

impl Policy {
    fn new(number: i64) -> Result<Policy> {
        match number {
            -1 => Ok(Policy::Off),
            0 => Ok(Policy::Auto),
            1 => Ok(Policy::File),
            2 => Ok(Policy::Data),
            3 => Ok(Policy::Hint),
            _ => Err(invalid_argument!("auto_shard_policy is invalid.")),
        }
    }
}

struct AutoShard {
    policy: i64,
    replicas: i64,
}

impl AutoShard {
    fn new(c: &Construction<'_>) -> Result<AutoShard> {
        Ok(AutoShard { policy: c.attrs().int("auto_shard_policy")?, replicas: c.attrs().int("num_replicas")? })
    }
}

impl Kernel for AutoShard {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, device) = (ctx.input(0)?.clone(), ctx.device().clone());
        tensor_dataset(&input, &device)?;
        let workers: i64 = scalar(ctx, 1, "num_workers")?;
        if workers <= 0 {
            return Err(invalid_argument!("num_workers must be greater than zero."));
        }
        let index: i64 = scalar(ctx, 2, "index")?;
        if index < 0 || index >= workers {
            return Err(invalid_argument!("index must be between 0 and {}", workers - 1));
        }
        let stated = stated_policy(&input);
        let policy = Policy::new(if stated == 0 { self.policy } else { stated })?;
        let division = Division { workers, index, replicas: self.replicas };
        let sharded = division.apply(&input, policy)?;
        // The rewritten dataset is known by its own recipe, not as this op's.
        let recipe = recipe_of(&sharded).cloned();
        let dataset: std::sync::Arc<dyn Dataset> = tensor_dataset(&sharded, &device)?;
        ctx.set_output(0, dataset_tensor(dataset, recipe)?)
    }
}

/// The part of `tensorflow.data.Options` that says how a dataset is divided.
#[derive(Clone, PartialEq, prost::Message)]
struct Options {
    #[prost(message, optional, tag = "2")]
    distribute: Option<DistributeOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DistributeOptions {
    #[prost(int32, tag = "1")]
    auto_shard_policy: i32,
}

/// The policy in the options of a dataset; 0 if there is none. Those stated last count.
fn stated_policy(tensor: &Tensor) -> i64 {
    let mut at = Some(tensor.clone());
    while let Some(recipe) = at.as_ref().and_then(recipe_of) {
        if recipe.op() == "OptionsDataset"
            && let Ok(bytes) = recipe.attrs().string("serialized_options")
            && let Ok(Options { distribute: Some(stated) }) = Options::decode(bytes)
            && stated.auto_shard_policy != 0
        {
            return i64::from(stated.auto_shard_policy);
        }
        at = recipe.inputs().first().cloned();
    }
    0
}

/// Whether an op is one of these, in any version.
fn is_one_of(op: &str, names: &[&str]) -> bool {
    let plain = op.trim_end_matches(|c: char| c.is_ascii_digit());
    let plain = if plain.len() < op.len() { plain.strip_suffix('V').unwrap_or(op) } else { op };
    names.contains(&plain)
}

fn recipe(tensor: &Tensor) -> Result<&Recipe> {
    recipe_of(tensor).ok_or_else(|| unimplemented_op!("A dataset of this kind cannot be divided among workers"))
}

/// The dataset below another.
fn below(recipe: &Recipe) -> Result<&Tensor> {
    recipe.inputs().first().ok_or_else(|| internal!("{} has no input", recipe.op()))
}

/// The same dataset of another one.
fn above(own: &Recipe, input: Tensor) -> Result<Tensor> {
    let inputs = std::iter::once(input).chain(own.inputs().iter().skip(1).cloned()).collect();
    own.make_other(own.op(), own.attrs().clone(), inputs)
}

/// A recipe as TensorFlow's texts show a node.
fn described(recipe: &Recipe) -> String {
    format!("{{{{node {}}}}} op: \"{}\"", recipe.op(), recipe.op())
}

/// Which part is wanted.
struct Division {
    workers: i64,
    index: i64,
    replicas: i64,
}

impl Division {
    fn apply(&self, input: &Tensor, policy: Policy) -> Result<Tensor> {
        match policy {
            Policy::Off => Ok(input.clone()),
            Policy::File if self.workers == 1 => Ok(input.clone()),
            Policy::File => self.by_file(input),
            Policy::Data => self.by_data(input),
            Policy::Hint => self.by_hint(input),
            Policy::Auto => match self.by_file(input) {
                Err(error) if error.code() == Code::NotFound => self.by_data(input),
                outcome => outcome,
            },
        }
    }

    /// The elements of `tensor` that are this worker's; `reader` tells the types where the dataset does not.
    fn shard(&self, reader: &Recipe, tensor: &Tensor) -> Result<Tensor> {
        let Some(source) = recipe_of(tensor) else {
            return Err(not_found!(
                "Unable to shard this input. You may need to wrap the inputs to your reader dataset in a \
                 TensorSliceDataset. Input node is {}",
                described(reader)
            ));
        };
        let attrs = source.attrs();
        let mut made = Attrs::new();
        let types = ["output_types", "Toutput_types"].into_iter().find_map(|name| attrs.get(name)?.value.clone());
        let strings = || AttrKind::List(Box::new(ListValue { r#type: vec![7], ..ListValue::default() }));
        made.set("output_types", types.unwrap_or_else(strings));
        let unknown = || TensorShapeProto { unknown_rank: true, ..TensorShapeProto::default() };
        let shapes = || AttrKind::List(Box::new(ListValue { shape: vec![unknown()], ..ListValue::default() }));
        made.set("output_shapes", attrs.get("output_shapes").and_then(|a| a.value.clone()).unwrap_or_else(shapes));
        made.set("require_non_empty", AttrKind::B(true));
        let inputs = vec![tensor.clone(), Tensor::scalar(self.workers)?, Tensor::scalar(self.index)?];
        source.make_other("ShardDataset", made, inputs)
    }

    /// Keeps every n-th element.
    fn by_data(&self, tensor: &Tensor) -> Result<Tensor> {
        let own = recipe(tensor)?;
        if TRAILING.contains(&own.op()) {
            return above(own, self.by_data(below(own)?)?);
        }
        if own.op() == "RebatchDatasetV2" {
            return self.shard(own, &self.rebatched(own)?);
        }
        self.shard(own, tensor)
    }

    /// The older form of rebatching: batches cut into one part for each replica.
    fn rebatched(&self, own: &Recipe) -> Result<Tensor> {
        if self.replicas < 1 {
            return Err(invalid_argument!(
                "Cannot rewrite RebatchDatasetV2 to legacy RebatchDataset with invalid num_replicas argument. \
                 `num_replicas` is {}, but expected to be >= 1.",
                self.replicas
            ));
        }
        let mut attrs = Attrs::new();
        for name in ["output_types", "output_shapes"] {
            if let Some(value) = own.attrs().get(name).and_then(|attr| attr.value.clone()) {
                attrs.set(name, without_batch_size(value));
            }
        }
        own.make_other("RebatchDataset", attrs, vec![below(own)?.clone(), Tensor::scalar(self.replicas)?])
    }

    /// Gives `ShardDataset`s that stand for a division their numbers.
    fn by_hint(&self, tensor: &Tensor) -> Result<Tensor> {
        let Some(own) = recipe_of(tensor) else { return Ok(tensor.clone()) };
        let inputs = own.inputs().iter().map(|input| self.by_hint(input)).collect::<Result<Vec<Tensor>>>()?;
        let is_hint = |number: &Tensor| number.scalar_value::<i64>().is_ok_and(|number| number == HINT);
        if own.op() == "ShardDataset" && inputs.get(1).is_some_and(is_hint) {
            let mut attrs = own.attrs().clone();
            attrs.set("require_non_empty", AttrKind::B(true));
            let numbers = [Tensor::scalar(self.workers)?, Tensor::scalar(self.index)?];
            return own.make_other(own.op(), attrs, inputs.into_iter().take(1).chain(numbers).collect());
        }
        own.make_other(own.op(), own.attrs().clone(), inputs)
    }

    /// Divides the files nearest to the end of the pipeline.
    fn by_file(&self, tensor: &Tensor) -> Result<Tensor> {
        let own = recipe(tensor)?;
        let op = own.op();
        if op == "AssertCardinalityDataset" {
            return self.by_file(below(own)?);
        }
        if is_one_of(op, &SOURCES) {
            return Err(not_found!("Found an unshardable source dataset: {}", described(own)));
        }
        if is_one_of(op, &MERGING) {
            let inputs = own.inputs().iter().map(|input| self.by_file(input)).collect::<Result<Vec<Tensor>>>()?;
            return own.make_other(op, own.attrs().clone(), inputs);
        }
        let (calls, passes) = (is_one_of(op, &CALLING), is_one_of(op, &PASSING));
        if ((calls || passes) && makes_reader(own)) || is_one_of(op, &READERS) {
            return self.divide_input(own);
        }
        if !calls && !passes {
            return Err(not_found!(
                "Did not find a shardable source, walked to a node which is not a dataset: {}. Consider either turning off \
                 auto-sharding or switching the auto_shard_policy to DATA to shard this dataset. You can do this by creating \
                 a new `tf.data.Options()` object then setting `options.experimental_distribute.auto_shard_policy = \
                 AutoShardPolicy.DATA` before applying the options object to the dataset via \
                 `dataset.with_options(options)`.",
                described(own)
            ));
        }
        above(own, self.by_file(below(own)?)?)
    }

    /// Divides the elements that a reader gets, before they are shuffled: all workers have to agree on their order.
    fn divide_input(&self, own: &Recipe) -> Result<Tensor> {
        let mut shuffles = Vec::new();
        let ordered = without_shuffle(below(own)?, &mut shuffles)?;
        let mut divided = self.shard(own, &ordered)?;
        if let Some(shuffle) = shuffles.last() {
            divided = above(shuffle, divided)?;
        }
        above(own, divided)
    }
}

/// A dataset without the shuffles in it, which are added to `shuffles`, the one nearest to the source last.
fn without_shuffle(tensor: &Tensor, shuffles: &mut Vec<Recipe>) -> Result<Tensor> {
    let Some(own) = recipe_of(tensor) else { return Ok(tensor.clone()) };
    if is_one_of(own.op(), &["ShuffleDataset"]) {
        shuffles.push(own.clone());
        return without_shuffle(below(own)?, shuffles);
    }
    let before = shuffles.len();
    let inputs = own.inputs().iter().map(|input| without_shuffle(input, shuffles)).collect::<Result<Vec<Tensor>>>()?;
    // What has no shuffle below it stays as it is, with the state that it may hold.
    if shuffles.len() == before {
        return Ok(tensor.clone());
    }
    own.make_other(own.op(), own.attrs().clone(), inputs)
}

/// Whether the function that a dataset calls has a dataset that reads files.
fn makes_reader(own: &Recipe) -> bool {
    let functions = own.functions();
    let (Some(functions), Ok(called)) = (&functions, own.attrs().func("f")) else { return false };
    has_reader(functions.graph().library(), &called.name, 0)
}

fn has_reader(library: &FunctionLibrary, name: &str, depth: u32) -> bool {
    let Some(function) = library.get(name).filter(|_| depth < DEPTH) else { return false };
    let called = |node: &NodeDef| match node.attr.get("f").and_then(|attr| attr.value.as_ref()) {
        Some(AttrKind::Func(function)) => has_reader(library, &function.name, depth + 1),
        _ => false,
    };
    function.def.node_def.iter().any(|node| {
        (is_one_of(&node.op, &READERS) && !node.input.is_empty()) || (is_one_of(&node.op, &CALLING) && called(node))
    })
}

/// Shapes whose first dimension is not known; other attributes stay.
fn without_batch_size(value: AttrKind) -> AttrKind {
    let AttrKind::List(mut list) = value else { return value };
    for shape in &mut list.shape {
        if let Some(batch) = shape.dim.first_mut() {
            batch.size = -1;
        }
    }
    AttrKind::List(list)
}
