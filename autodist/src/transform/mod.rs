//! Rewrites of graphs: from the graph of one device to the graph of one task of a job.

mod compress;
mod copies;
mod feeds;
mod first_values;
mod gradients;
mod job;
mod loops;
mod nodes;
mod partition;
mod reduce;
mod replicas;
mod roles;
mod rows;
mod servers;
mod writer;

pub use feeds::{Feed, Fetch};
pub use partition::partition_variables;

use crate::compiler::CompiledStrategy;
use crate::item::{GraphItem, UpdateKind, update_kind};
use graphmill_tensor::Result;
use graphmill_wire::tensorflow::{GraphDef, MetaGraphDef, VariableDef};
use job::{Job, scope};
use nodes::Emitter;
use replicas::Wiring;
use roles::Roles;
use servers::Plan;
use std::collections::HashMap;
use writer::Writer;

/// How to rewrite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransformOptions {
    /// Whether every task has one device for all its processors, so that replicas on several processors share it.
    pub one_processor: bool,
}

impl Default for TransformOptions {
    /// One device for all processors.
    fn default() -> TransformOptions {
        TransformOptions { one_processor: true }
    }
}

/// The graph of one task.
#[derive(Clone, Debug)]
pub struct TransformedGraph {
    /// The graph, with the first replica's variables in its collections.
    pub meta_graph: MetaGraphDef,
    /// The copies of the model in it.
    pub replicas: usize,
    /// Whether this is the chief's graph.
    pub is_chief: bool,
    /// What becomes of fed values.
    pub feeds: Vec<Feed>,
    /// What becomes of fetches.
    pub fetches: Vec<Fetch>,
    /// The node that gives variables and tables their first values. The chief runs it once; other tasks, which take the chief's values, run it
    /// once `ready` is true.
    pub initialise: String,
    /// The node that tells whether the chief has run `initialise`.
    pub ready: String,
    /// The node that tells whether all tasks have run `initialise`. Those that run steps before take the risk that others begin with
    /// variables of the chief that these steps have changed, such as schedules that an optimiser keeps.
    pub started: String,
    /// What was done otherwise than the strategy says, in words.
    pub warnings: Vec<String>,
}

/// Rewrites a graph for one task: variables split, a copy of the model for each replica of the task, gradients brought together as the
/// strategy says. All tasks rewrite the same graph by the same strategy.
///
/// # Errors
/// `INVALID_ARGUMENT` if the task trains nothing or the strategy is not one for the graph, `UNIMPLEMENTED` for uses of variables that
/// cannot be rewritten, `ALREADY_EXISTS` if a node has a name that is needed.
pub fn transform(
    item: &GraphItem,
    strategy: &CompiledStrategy,
    task: usize,
    options: TransformOptions,
) -> Result<TransformedGraph> {
    let (strategy, mut more_warnings) = whole_where_hand_written(item, strategy);
    let job = Job::new(&strategy, task, options.one_processor)?;
    let item = &partition_variables(item, &strategy)?;
    let roles = Roles::new(item, &job)?;
    let mut writer = Writer {
        job: &job,
        roles: &roles,
        in_loops: roles.find_in_loops()?,
        proxies: HashMap::new(),
        out: Emitter::new([].into_iter()),
    };
    writer.write_missing_reads()?;
    let mut plans: Vec<Plan> = Vec::new();
    for learner in &roles.learners {
        plans.push(match learner.server() {
            Some(server) => writer.serve(learner, server)?,
            None => Plan::default(),
        });
    }
    for (number, gradient, prepare) in writer.reduce()? {
        plans[number] = Plan { gradient: Some(gradient), gate: None, prepare };
    }
    if let Some(warning) = writer.plain_warning() {
        more_warnings.push(warning);
    }
    let prepare = plans.iter().flat_map(|plan| plan.prepare.iter().cloned()).collect();
    let wiring = Wiring::new(&writer, &plans);
    for replica in 0..job.replicas.len() {
        writer.write_replica(replica, &wiring)?;
    }
    let start = writer.write_initialisers(prepare)?;
    let (feeds, fetches) = (writer.feeds(), writer.fetches());
    let graph = GraphDef { node: writer.out.into_nodes(), ..item.graph().clone() };
    let variables = item.variables().iter().map(|variable| in_first_replica(&variable.def)).collect();
    let savers = item.savers().iter().map(|saver| {
        let mut saver = saver.clone();
        for name in [&mut saver.filename_tensor_name, &mut saver.save_tensor_name, &mut saver.restore_op_name] {
            prefix(name);
        }
        saver
    });
    let tables = item.table_initializers().iter().map(|name| format!("{}/{name}", scope(0))).collect();
    let meta_graph = crate::item::meta_graph(graph, variables, tables, savers.collect());
    Ok(TransformedGraph {
        meta_graph,
        replicas: job.replicas.len(),
        is_chief: job.is_chief(),
        feeds,
        fetches,
        initialise: start.initialise,
        ready: start.ready,
        started: start.started,
        warnings: [&strategy.warnings[..], &more_warnings].concat(),
    })
}

/// The strategy with variables whole whose optimiser writes its update out in several operations: those run on the whole gradient, so
/// that gradients of parts cannot be brought together.
fn whole_where_hand_written(item: &GraphItem, strategy: &CompiledStrategy) -> (CompiledStrategy, Vec<String>) {
    let mut strategy = strategy.clone();
    let mut warnings = Vec::new();
    for entry in strategy.variables.iter_mut().filter(|entry| entry.plan.is_some()) {
        let Some(update) = item.update(&entry.variable) else { continue };
        let op = item.index().find(&update.op).map(|at| item.graph().node[at].op.as_str()).unwrap_or_default();
        let is_linear = update_kind(op) == Some(UpdateKind::Scatter) && update.slots.is_empty();
        if !is_linear && matches!(update_kind(op), Some(UpdateKind::Assign | UpdateKind::Scatter)) {
            entry.plan = None;
            entry.leaves.truncate(1);
            if let Some(leaf) = entry.leaves.first_mut() {
                leaf.name.clone_from(&entry.variable);
            }
            warnings.push(format!(
                "Variable \"{}\" stays whole: its optimiser writes its update out in several operations",
                entry.variable
            ));
        }
    }
    (strategy, warnings)
}

fn in_first_replica(def: &VariableDef) -> VariableDef {
    let mut def = def.clone();
    for name in [&mut def.variable_name, &mut def.initializer_name, &mut def.snapshot_name, &mut def.initial_value_name]
    {
        prefix(name);
    }
    def
}

fn prefix(name: &mut String) {
    if !name.is_empty() {
        *name = format!("{}/{name}", scope(0));
    }
}
