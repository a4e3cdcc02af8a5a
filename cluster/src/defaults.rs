//! The settings that a server has for every session.

use bytes::Bytes;
use graphmill_tensor::{Result, internal};
use graphmill_wire::tensorflow::ConfigProto;
use prost::Message;

/// Settings that are merged into those of each client.
#[derive(Default)]
pub(crate) struct SessionDefaults(Bytes);

impl SessionDefaults {
    /// What is read from the client's settings alone is left out.
    pub fn new(config: ConfigProto) -> SessionDefaults {
        let (device_filters, cluster_def, rpc_options) = (Vec::new(), None, None);
        let merged = ConfigProto { device_filters, cluster_def, rpc_options, ..config };
        SessionDefaults(merged.encode_to_vec().into())
    }

    /// The client's settings with those of the server: the server's scalars win, its lists are appended.
    ///
    /// # Errors
    /// None, as the settings have been encoded here.
    pub fn merged_into(&self, mut client: ConfigProto) -> Result<ConfigProto> {
        let merged = client.merge(self.0.clone());
        merged.map_err(|error| internal!("The settings of the server cannot be read: {error}"))?;
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_wire::tensorflow::{ClusterDef, RpcOptions, config_proto::Experimental};

    #[test]
    fn the_servers_scalars_win_and_its_lists_are_appended() {
        let named = |leader: &str| Experimental { collective_group_leader: leader.to_owned(), ..Default::default() };
        let server = ConfigProto {
            operation_timeout_in_ms: 7,
            allow_soft_placement: true,
            device_count: [("CPU".to_owned(), 2)].into(),
            device_filters: vec!["/job:ps".to_owned()],
            cluster_def: Some(ClusterDef::default()),
            rpc_options: Some(RpcOptions::default()),
            experimental: Some(named("/job:a")),
            ..Default::default()
        };
        let client = ConfigProto {
            operation_timeout_in_ms: 9,
            log_device_placement: true,
            device_count: [("CPU".to_owned(), 1), ("GPU".to_owned(), 3)].into(),
            device_filters: vec!["/job:worker".to_owned()],
            experimental: Some(Experimental { optimize_for_static_graph: true, ..named("/job:b") }),
            ..Default::default()
        };
        let merged = SessionDefaults::new(server).merged_into(client).unwrap();
        assert_eq!(merged.operation_timeout_in_ms, 7);
        assert!(merged.allow_soft_placement && merged.log_device_placement);
        assert_eq!(merged.device_count, [("CPU".to_owned(), 2), ("GPU".to_owned(), 3)].into());
        assert_eq!(merged.device_filters, ["/job:worker"]);
        assert!(merged.cluster_def.is_none() && merged.rpc_options.is_none());
        let experimental = merged.experimental.unwrap();
        assert_eq!(experimental.collective_group_leader, "/job:a");
        assert!(experimental.optimize_for_static_graph);
    }
}
