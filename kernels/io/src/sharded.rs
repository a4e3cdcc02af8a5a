//! Names of files that a checkpoint is spread over.

use crate::inputs::{first, set_string, text};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ShardedFilename").kernel(|_| Ok(ShardedFilename));
    registry.op("ShardedFilespec").kernel(|_| Ok(ShardedFilespec));
}

/// `NAME-00001-of-00005`: the file of one shard.
struct ShardedFilename;

/// `NAME-?????-of-00005`: a pattern for all of them.
struct ShardedFilespec;

fn check_scalars(ctx: &Context<'_>, names: &[&str]) -> Result<()> {
    for (i, name) in names.iter().enumerate() {
        let shape = ctx.input(i)?.shape();
        if !shape.is_scalar() {
            return Err(invalid_argument!("{name} must be a scalar, got shape {shape}"));
        }
    }
    Ok(())
}

impl Kernel for ShardedFilename {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        check_scalars(ctx, &["basename", "shard", "num_shards"])?;
        let name = text(first(ctx.input(0)?)?);
        let (shard, shards) = (ctx.input(1)?.scalar_value::<i32>()?, ctx.input(2)?.scalar_value::<i32>()?);
        set_string(ctx, 0, format!("{name}-{shard:05}-of-{shards:05}"))
    }
}

impl Kernel for ShardedFilespec {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        check_scalars(ctx, &["basename", "num_shards"])?;
        let name = text(first(ctx.input(0)?)?);
        let shards = ctx.input(1)?.scalar_value::<i32>()?;
        set_string(ctx, 0, format!("{name}-?????-of-{shards:05}"))
    }
}
