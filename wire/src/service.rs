//! The methods of the master and the worker service, and where they are on the wire.
//!
//! The paths carry no `grpc` although the package of the service definitions is `tensorflow.grpc`:
//! clients call `/tensorflow.MasterService/RunStep`, and servers answer the longer form with
//! UNIMPLEMENTED. All methods are unary, and the method `X` takes [`tensorflow`] `XRequest` and
//! answers `XResponse`.
//!
//! [`tensorflow`]: crate::tensorflow

macro_rules! methods {
    (
        $(#[$doc:meta])*
        $name:ident = $service:literal {
            $($(#[$method_doc:meta])* $method:ident,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$method_doc])* $method,)*
        }

        impl $name {
            /// Name of the service, as it stands in a path.
            pub const SERVICE: &'static str = $service;

            /// Every method, in the order of the service definition.
            pub const ALL: &'static [Self] = &[$(Self::$method),*];

            /// Name of the method, such as `RunStep`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$method => stringify!($method),)*
                }
            }

            /// HTTP/2 path of the method, such as `/tensorflow.MasterService/RunStep`.
            pub const fn path(self) -> &'static str {
                match self {
                    $(Self::$method => concat!("/", $service, "/", stringify!($method)),)*
                }
            }

            /// The method that a path names, if it is one of this service.
            ///
            /// The match is exact: no other case, no trailing slash, no query.
            pub fn from_path(path: &str) -> Option<Self> {
                match path {
                    $(concat!("/", $service, "/", stringify!($method)) => Some(Self::$method),)*
                    _ => None,
                }
            }
        }
    };
}

methods! {
    /// Methods that a client calls on the server it is connected to.
    MasterMethod = "tensorflow.MasterService" {
        /// Opens a session on a graph.
        CreateSession,
        /// Adds nodes to the graph of a session.
        ExtendSession,
        /// Announces the feeds and fetches of a run that takes them in several calls.
        PartialRunSetup,
        /// Runs one step.
        RunStep,
        /// Ends a session.
        CloseSession,
        /// Lists the devices of a session or of the server.
        ListDevices,
        /// Clears resource containers on all workers.
        Reset,
        /// Prepares a step that is then run by its handle.
        MakeCallable,
        /// Runs a prepared step.
        RunCallable,
        /// Forgets a prepared step.
        ReleaseCallable,
    }
}

methods! {
    /// Methods that a master, or another worker, calls on a worker.
    WorkerMethod = "tensorflow.WorkerService" {
        /// Lists the devices of the worker.
        GetStatus,
        /// Makes the worker's side of a session.
        CreateWorkerSession,
        /// Ends the worker's side of a session.
        DeleteWorkerSession,
        /// Stores the partition of a graph that the worker will run.
        RegisterGraph,
        /// Forgets a stored partition.
        DeregisterGraph,
        /// Runs a stored partition for one step.
        RunGraph,
        /// Drops what a step has left behind.
        CleanupGraph,
        /// Clears resource containers on the worker.
        CleanupAll,
        /// Waits for one tensor that the worker produces in a step.
        RecvTensor,
        /// Waits for one buffer of a collective operation.
        RecvBuf,
        /// Switches the log of transfers on or off, or reads it.
        Logging,
        /// Records a trace of the worker.
        Tracing,
        /// Joins a device to a collective group.
        CompleteGroup,
        /// Agrees on one instance of a collective operation in its group.
        CompleteInstance,
        /// Asks the group leader which step identifiers come next.
        GetStepSequence,
        /// Confirms that the response to a tensor or buffer request has arrived.
        MarkRecvFinished,
    }
}

#[cfg(test)]
mod tests {
    use super::{MasterMethod, WorkerMethod};

    #[test]
    fn master_paths() {
        let paths: Vec<_> = MasterMethod::ALL.iter().map(|m| m.path()).collect();
        assert_eq!(
            paths,
            [
                "/tensorflow.MasterService/CreateSession",
                "/tensorflow.MasterService/ExtendSession",
                "/tensorflow.MasterService/PartialRunSetup",
                "/tensorflow.MasterService/RunStep",
                "/tensorflow.MasterService/CloseSession",
                "/tensorflow.MasterService/ListDevices",
                "/tensorflow.MasterService/Reset",
                "/tensorflow.MasterService/MakeCallable",
                "/tensorflow.MasterService/RunCallable",
                "/tensorflow.MasterService/ReleaseCallable",
            ]
        );
    }

    #[test]
    fn worker_paths() {
        let paths: Vec<_> = WorkerMethod::ALL.iter().map(|m| m.path()).collect();
        assert_eq!(
            paths,
            [
                "/tensorflow.WorkerService/GetStatus",
                "/tensorflow.WorkerService/CreateWorkerSession",
                "/tensorflow.WorkerService/DeleteWorkerSession",
                "/tensorflow.WorkerService/RegisterGraph",
                "/tensorflow.WorkerService/DeregisterGraph",
                "/tensorflow.WorkerService/RunGraph",
                "/tensorflow.WorkerService/CleanupGraph",
                "/tensorflow.WorkerService/CleanupAll",
                "/tensorflow.WorkerService/RecvTensor",
                "/tensorflow.WorkerService/RecvBuf",
                "/tensorflow.WorkerService/Logging",
                "/tensorflow.WorkerService/Tracing",
                "/tensorflow.WorkerService/CompleteGroup",
                "/tensorflow.WorkerService/CompleteInstance",
                "/tensorflow.WorkerService/GetStepSequence",
                "/tensorflow.WorkerService/MarkRecvFinished",
            ]
        );
    }

    #[test]
    fn paths_lead_back() {
        for &method in MasterMethod::ALL {
            assert_eq!(MasterMethod::from_path(method.path()), Some(method));
            assert_eq!(WorkerMethod::from_path(method.path()), None);
            assert!(method.path().ends_with(method.name()));
        }
        for &method in WorkerMethod::ALL {
            assert_eq!(WorkerMethod::from_path(method.path()), Some(method));
            assert_eq!(MasterMethod::from_path(method.path()), None);
            assert!(method.path().ends_with(method.name()));
        }
    }

    #[test]
    fn other_paths_are_unknown() {
        for path in [
            "",
            "/",
            "RunStep",
            "/tensorflow.grpc.MasterService/RunStep",
            "/tensorflow.MasterService/runstep",
            "/tensorflow.MasterService/RunStep/",
            "tensorflow.MasterService/RunStep",
            "/tensorflow.MasterService/",
        ] {
            assert_eq!(MasterMethod::from_path(path), None, "{path}");
        }
    }
}
