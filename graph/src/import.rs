//! From a `GraphDef` off the wire to a checked graph.

use crate::graph::next_id;
use crate::names::is_valid_input;
use crate::validate;
use crate::{
    Attrs, Endpoint, EndpointName, Flow, FunctionLibrary, Graph, Inputs, Node, NodeId, OpDef, is_valid_node_name,
};
use graphmill_tensor::{Result, Status, invalid_argument, not_found, unimplemented_op};
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef, VersionDef};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

/// The graph version whose ops and rules are known here, which is TensorFlow 2.21's.
pub const GRAPH_DEF_VERSION: i32 = 2474;

/// The TensorFlow release of that version, for the texts that name it.
const TENSORFLOW_RELEASE: &str = "2.21.0";

/// Oldest producer whose graphs are understood.
const MIN_PRODUCER: i32 = 0;

/// Graphs with functions need consumers from this version on.
const MIN_CONSUMER_WITH_FUNCTIONS: i32 = 12;

/// Most outputs that the nodes of one message may have together.
const MAX_OUTPUTS: usize = 1 << 24;

/// What is accepted beyond a client's graph.
#[derive(Clone, Copy, Default, Debug)]
pub struct ImportOptions {
    /// Whether node names may begin with an underscore, as those of a master's rewritten graphs do.
    pub allow_internal_names: bool,
    /// Whether each node must name a device, which is then the assigned one.
    pub expect_device: bool,
}

impl Graph {
    /// A graph off the wire, checked as TensorFlow's master checks a client's graph.
    ///
    /// # Errors
    /// As [`Graph::extend_with`].
    pub fn from_def(def: &GraphDef) -> Result<Graph> {
        Graph::from_def_with(def.clone(), ImportOptions::default())
    }

    /// A graph off the wire, without a copy of its attributes.
    ///
    /// # Errors
    /// As [`Graph::extend_with`].
    pub fn from_def_with(def: GraphDef, options: ImportOptions) -> Result<Graph> {
        let mut graph = Graph::new();
        graph.extend_with(def, options)?;
        Ok(graph)
    }

    /// Adds the nodes and functions of a message. On an error the graph is as before.
    ///
    /// # Errors
    /// As [`Graph::extend_with`].
    pub fn extend(&mut self, def: &GraphDef) -> Result<()> {
        self.extend_with(def.clone(), ImportOptions::default())
    }

    /// Adds the nodes and functions of a message, without a copy of its attributes. On an error the graph is as before.
    ///
    /// # Errors
    /// With TensorFlow's texts: `INVALID_ARGUMENT` for ill-spelled or repeated names, versions that do not fit, attributes that
    /// are missing or not permitted, inputs that do not exist or have another type, and cycles that are not loops; `NOT_FOUND`
    /// for unknown ops; `UNIMPLEMENTED` for ops that graphs of that version must not use.
    pub fn extend_with(&mut self, def: GraphDef, options: ImportOptions) -> Result<()> {
        let GraphDef { node: defs, versions, library, .. } = def;
        if !options.allow_internal_names {
            defs.iter().try_for_each(check_syntax)?;
        }
        let library = match &library {
            Some(proto) => self.library.extended(proto)?.map(Arc::new),
            None => None,
        };
        let functions = library.as_ref().unwrap_or(&self.library);
        self.check_not_created(&defs)?;
        let ops = defs.iter().map(|def| find_op(functions, &def.op)).collect::<Result<Vec<_>>>()?;
        let versions = self.merged_versions(versions.unwrap_or_default(), functions)?;

        let mut nodes = Vec::with_capacity(defs.len());
        let mut sources = Vec::with_capacity(defs.len());
        let mut interner = Interner::default();
        let mut outputs = 0usize;
        for (def, op) in defs.into_iter().zip(ops) {
            let (node, input) = new_node(def, op, versions.producer, options, &mut interner)?;
            outputs += node.output_types.len();
            if outputs > MAX_OUTPUTS {
                return Err(invalid_argument!("Number of outputs is too big: {outputs}"));
            }
            nodes.push(node);
            sources.push(input);
        }

        let offset = self.len();
        let index = index_names(&nodes, offset, options)?;
        let mut may_cycle = false;
        for (at, names) in sources.iter().enumerate() {
            let edges = self.resolve(&nodes, &index, at, names)?;
            may_cycle |= edges.forward;
            nodes[at].inputs = edges.inputs;
            nodes[at].control_inputs = edges.control;
        }
        for node in &nodes {
            for (input, endpoint) in node.inputs.iter().enumerate() {
                let source = match endpoint.node.index().checked_sub(offset) {
                    Some(at) => &nodes[at],
                    None => &**self.node(endpoint.node),
                };
                validate::check_edge(source, endpoint.slot, node, input)?;
            }
        }
        if !options.allow_internal_names {
            nodes.iter().try_for_each(|node| check_called(functions, node))?;
        }
        if may_cycle {
            check_cycles(self, &nodes)?;
        }

        if self.is_empty() {
            self.by_name = Arc::new(index);
        } else {
            Arc::make_mut(&mut self.by_name).extend(index);
        }
        self.nodes.extend(nodes.into_iter().map(Arc::new));
        self.versions = versions;
        if let Some(library) = library {
            self.library = library;
        }
        Ok(())
    }

    fn check_not_created(&self, defs: &[NodeDef]) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        // The first one in the order of the session's graph, which is the one that TensorFlow names.
        let first = defs.iter().filter_map(|def| self.find(&def.name)).min();
        match first {
            None => Ok(()),
            Some(id) => Err(invalid_argument!(
                "GraphDef argument to Extend includes node '{}', which was created by a previous call to Create or Extend in this \
                 session.",
                self.node(id).name
            )),
        }
    }

    /// The versions of this graph and of the message together. The producer need not be that of the session's graph: TensorFlow
    /// lets a session be extended by another release.
    fn merged_versions(&self, new: VersionDef, functions: &FunctionLibrary) -> Result<VersionDef> {
        check_versions(&new)?;
        let mut merged = new;
        if !self.is_empty() {
            merged.producer = self.versions.producer;
        }
        merged.min_consumer = merged.min_consumer.max(self.versions.min_consumer);
        if !functions.is_empty() {
            merged.min_consumer = merged.min_consumer.max(MIN_CONSUMER_WITH_FUNCTIONS);
        }
        merged.bad_consumers.extend(&self.versions.bad_consumers);
        merged.bad_consumers.sort_unstable();
        merged.bad_consumers.dedup();
        Ok(merged)
    }

    /// Finds the nodes that a new node's inputs name.
    fn resolve(&self, nodes: &[Node], index: &HashMap<Arc<str>, NodeId>, at: usize, names: &[String]) -> Result<Edges> {
        let node = &nodes[at];
        let mut edges = Edges::default();
        let mut seen_control = false;
        let mut back_edges = 0;
        for name in names {
            let EndpointName { node: source, slot } = EndpointName::parse(name);
            let Some(&id) = index.get(source).or_else(|| self.by_name.get(source)) else {
                return Err(invalid_argument!("Node '{}': Unknown input node '{name}'", node.name));
            };
            let later = id.index() >= self.len() + at;
            match slot {
                Some(slot) => {
                    if seen_control {
                        return Err(invalid_argument!(
                            "Node '{}': Control dependencies must come after regular dependencies",
                            node.name
                        ));
                    }
                    edges.inputs.push(Endpoint { node: id, slot });
                    let source = match id.index().checked_sub(self.len()) {
                        Some(source) => &nodes[source],
                        None => &**self.node(id),
                    };
                    if slot == u32::MAX {
                        let slot = name.rsplit(':').next().unwrap_or_default();
                        return Err(validate::no_such_output(source, slot, &node.name));
                    }
                    if leads_back(source, node) {
                        back_edges += 1;
                    } else {
                        edges.forward |= later;
                    }
                }
                None => {
                    seen_control = true;
                    edges.control.push(id);
                    edges.forward |= later;
                }
            }
        }
        // A merge that only back edges reach waits for itself.
        edges.forward |= back_edges > 0 && back_edges == edges.inputs.len();
        if edges.control.len() > 1 {
            let mut seen = HashSet::with_capacity(edges.control.len());
            edges.control.retain(|id| seen.insert(*id));
        }
        if edges.inputs.len() != node.input_types.len() {
            return Err(validate::wrong_number_of_inputs(node, edges.inputs.len()));
        }
        Ok(edges)
    }
}

/// Checks that the function of a plain call exists. Other callers fail when they run: their branch may never be taken.
fn check_called(functions: &FunctionLibrary, node: &Node) -> Result<()> {
    if !matches!(&*node.op.name, "PartitionedCall" | "StatefulPartitionedCall") {
        return Ok(());
    }
    let name = &node.attrs.func("f")?.name;
    match functions.get(name) {
        Some(_) => Ok(()),
        None => Err(invalid_argument!("Failed to find function \"{name}\" in function library").at_node(&node.name)),
    }
}

/// Whether an edge leads back to the start of a loop.
fn leads_back(source: &Node, target: &Node) -> bool {
    target.op.flow == Flow::Merge && source.op.flow == Flow::NextIteration
}

/// Where a node's edges come from.
#[derive(Default)]
struct Edges {
    inputs: Inputs,
    control: SmallVec<[NodeId; 4]>,
    /// Whether one comes from this node or from a later one, and is not the back edge of a loop.
    forward: bool,
}

/// Checks the spelling of a client's node.
fn check_syntax(def: &NodeDef) -> Result<()> {
    if !is_valid_node_name(&def.name, false) {
        return Err(invalid_argument!("Illegal op name '{}'", def.name).at_node(&def.name));
    }
    let mut in_control = false;
    for input in &def.input {
        if !is_valid_input(input) {
            return Err(invalid_argument!("Illegal op input name '{input}'").at_node(&def.name));
        }
        let control = input.starts_with('^');
        if in_control && !control {
            return Err(invalid_argument!("All control inputs must follow all data inputs").at_node(&def.name));
        }
        in_control = control;
    }
    Ok(())
}

fn find_op(functions: &FunctionLibrary, name: &str) -> Result<Arc<OpDef>> {
    functions.op_def(name).cloned().ok_or_else(|| unknown_op(name))
}

/// The error for an op that is neither known nor a function.
pub(crate) fn unknown_op(name: &str) -> Status {
    static HOST: LazyLock<String> = LazyLock::new(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
    });
    not_found!(
        "Op type not registered '{name}' in binary running on {}. Make sure the Op and Kernel are registered in the binary \
         running in this process. Note that if you are loading a saved graph which used ops from tf.contrib (e.g. \
         `tf.contrib.resampler`), accessing should be done before importing the graph, as contrib ops are lazily registered when \
         the module is first accessed.",
        *HOST
    )
}

fn check_versions(versions: &VersionDef) -> Result<()> {
    let VersionDef { producer, min_consumer, bad_consumers } = versions;
    if *producer < MIN_PRODUCER {
        return Err(invalid_argument!(
            "GraphDef producer version {producer} below min producer {MIN_PRODUCER} supported by TensorFlow \
             {TENSORFLOW_RELEASE}.  Please regenerate your graph."
        ));
    }
    if *min_consumer > GRAPH_DEF_VERSION {
        return Err(invalid_argument!(
            "GraphDef min consumer version {min_consumer} above current version {GRAPH_DEF_VERSION} for TensorFlow \
             {TENSORFLOW_RELEASE}.  Please upgrade TensorFlow."
        ));
    }
    if bad_consumers.contains(&GRAPH_DEF_VERSION) {
        return Err(invalid_argument!(
            "GraphDef disallows consumer version {GRAPH_DEF_VERSION}.  Please upgrade TensorFlow: this version is likely buggy."
        ));
    }
    Ok(())
}

/// One copy of each name that many nodes share.
#[derive(Default)]
struct Interner {
    known: HashMap<String, Arc<str>>,
    /// The last one: neighbours are often on one device.
    last: Arc<str>,
    empty: Arc<str>,
}

impl Interner {
    fn get(&mut self, text: String) -> Arc<str> {
        if text.is_empty() {
            return self.empty.clone();
        }
        if *self.last == *text {
            return self.last.clone();
        }
        let shared = match self.known.get(&text) {
            Some(shared) => shared.clone(),
            None => {
                let shared: Arc<str> = Arc::from(text.as_str());
                self.known.insert(text, shared.clone());
                shared
            }
        };
        self.last = shared.clone();
        shared
    }
}

/// A node without its edges, and the names of its inputs.
fn new_node(
    def: NodeDef,
    op: Arc<OpDef>,
    producer: i32,
    options: ImportOptions,
    interner: &mut Interner,
) -> Result<(Node, Vec<String>)> {
    let attrs = with_defaults(def.attr, &op, interner);
    validate::check_attrs(&op, &attrs, &def.name)?;
    let (input_types, output_types) = validate::slot_types(&op, &attrs).map_err(|error| error.at_node(&def.name))?;
    if let Some((version, explanation)) = &op.deprecation
        && producer >= *version
    {
        return Err(unimplemented_op!(
            "Op {} is not available in GraphDef version {producer}. It has been removed in version {version}. {explanation}.",
            op.name
        ));
    }
    let device = interner.get(def.device);
    let assigned_device = if options.expect_device { device.clone() } else { interner.empty.clone() };
    let node = Node {
        name: Arc::from(def.name),
        op,
        attrs,
        inputs: Inputs::new(),
        control_inputs: SmallVec::new(),
        device,
        assigned_device,
        input_types,
        output_types,
    };
    Ok((node, def.input))
}

/// A node's attributes with the defaults of those that are not there. Names of the schema are shared with it.
fn with_defaults(values: BTreeMap<String, AttrValue>, op: &OpDef, interner: &mut Interner) -> Attrs {
    let mut entries = Vec::with_capacity(values.len().max(op.attrs.len()));
    for (name, value) in values {
        let shared = op.attr(&name).map(|attr| attr.name.clone());
        entries.push((shared.unwrap_or_else(|| interner.get(name)), value));
    }
    let given = entries.len();
    for attr in &op.attrs {
        if let Some(default) = &attr.default
            && entries[..given].binary_search_by(|(name, _)| name.cmp(&attr.name)).is_err()
        {
            entries.push((attr.name.clone(), default.clone()));
        }
    }
    if entries.len() > given {
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    }
    Attrs::from_sorted(entries)
}

/// The ids of new nodes by name.
fn index_names(nodes: &[Node], offset: usize, options: ImportOptions) -> Result<HashMap<Arc<str>, NodeId>> {
    let mut index = HashMap::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let name = &node.name;
        if !is_valid_node_name(name, options.allow_internal_names) {
            return Err(invalid_argument!("Node '{name}': Node name contains invalid characters"));
        }
        if index.insert(name.clone(), next_id(offset + at)?).is_some() {
            return Err(invalid_argument!("Node '{name}' is not unique"));
        }
        if options.expect_device && node.device.is_empty() {
            return Err(invalid_argument!("Node '{name}' is missing a device specification"));
        }
    }
    Ok(index)
}

/// Checks that new nodes can be put in an order; edges that lead back to the start of a loop aside.
fn check_cycles(graph: &Graph, nodes: &[Node]) -> Result<()> {
    let local = |id: NodeId| id.index().checked_sub(graph.len());
    let mut pending = vec![0usize; nodes.len()];
    let mut consumers: Vec<SmallVec<[usize; 4]>> = vec![SmallVec::new(); nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        let mut back_edges = 0;
        for input in &node.inputs {
            let source = local(input.node);
            if leads_back(source.map_or_else(|| &**graph.node(input.node), |source| &nodes[source]), node) {
                back_edges += 1;
            } else if let Some(source) = source {
                consumers[source].push(at);
                pending[at] += 1;
            }
        }
        for source in node.control_inputs.iter().filter_map(|&id| local(id)) {
            consumers[source].push(at);
            pending[at] += 1;
        }
        if back_edges > 0 && back_edges == node.inputs.len() {
            pending[at] += 1;
        }
    }
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|&at| pending[at] == 0).collect();
    let mut left = nodes.len();
    while let Some(at) = ready.pop() {
        left -= 1;
        for &consumer in &consumers[at] {
            pending[consumer] -= 1;
            if pending[consumer] == 0 {
                ready.push(consumer);
            }
        }
    }
    if left == 0 { Ok(()) } else { Err(invalid_argument!("{left} nodes in a cycle")) }
}
