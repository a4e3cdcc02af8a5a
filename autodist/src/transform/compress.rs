//! Gradients that travel in half precision.

use super::reduce::Bundle;
use super::roles::Learner;
use super::writer::{Spot, Writer, bytes, set, ty};
use crate::strategy::Compressor;
use graphmill_tensor::{DType, Result, unimplemented_op};
use graphmill_wire::tensorflow::NodeDef;
use graphmill_wire::tensorflow::attr_value::Value;

/// The largest number of half precision; larger gradients travel as this one.
const MOST: i64 = 65_504;

impl Writer<'_> {
    /// The mean over all replicas of a vector that each task has the sum of. Every task sends its own part in half precision, and sums
    /// what it gets in the wide type. With error feedback what a task's rounding lost is added to its next gradient.
    pub(super) fn mean_of_halves(
        &mut self,
        spot: &Spot,
        first: &Learner<'_>,
        bundle: &Bundle,
        sum: &str,
    ) -> Result<(String, Vec<String>)> {
        let dtype = bundle.dtype;
        let wide = [("T", ty(dtype))];
        let replicas = self.job.strategy.replicas.len();
        let nodes = self.job.nodes();
        let mut prepare = Vec::new();
        // Scaled so that the mean over tasks is the mean over replicas.
        let scaled = if replicas == nodes {
            sum.to_owned()
        } else {
            let factor = self.number(spot, "scale/nodes", dtype, nodes as i64)?;
            let product = self.add(spot, "scale", "Mul", &[sum, &factor], &wide)?;
            self.divide(spot, "scaled", dtype, &product, replicas)?
        };
        let mut residual = None;
        let whole = match bundle.reduce.compressor {
            Compressor::HorovodErrorFeedback => {
                let (handle, read, initialiser) = self.residual(spot, first, bundle)?;
                prepare.push(initialiser);
                residual = Some(handle);
                self.add(spot, "with_residual", "AddV2", &[&scaled, &read], &wide)?
            }
            Compressor::PowerSgd => {
                return Err(unimplemented_op!(
                    "Variable \"{}\" is to be reduced with PowerSGDCompressor, which is not there; use HorovodCompressorEF",
                    first.variable.name
                ));
            }
            Compressor::None | Compressor::Horovod => scaled,
        };
        let most = self.number(spot, "most", dtype, MOST)?;
        let least = self.number(spot, "least", dtype, -MOST)?;
        let clipped = self.add(spot, "clipped", "ClipByValue", &[&whole, &least, &most], &wide)?;
        let mut half = self.cast(spot, "half", &clipped, dtype, DType::Half)?;
        if let Some(handle) = residual {
            let sent = self.cast(spot, "sent", &half, DType::Half, dtype)?;
            let lost = self.add(spot, "lost", "Sub", &[&whole, &sent], &wide)?;
            let kept =
                self.add(spot, "keep_residual", "AssignVariableOp", &[&handle, &lost], &[("dtype", ty(dtype))])?;
            half =
                self.add(spot, "half_after", "Identity", &[&half, &format!("^{kept}")], &[("T", ty(DType::Half))])?;
        }
        let number = self.number(spot, "halves/number", DType::Int32, 1)?;
        let gathered = self.gather_all(spot, "halves", DType::Half, &half, bundle.reduce, &number)?;
        let gathered = self.cast(spot, "received", &gathered, DType::Half, dtype)?;
        let rows = self.vector(spot, "by_task", DType::Int32, &[nodes as i64, -1])?;
        let reshape = [("T", ty(dtype)), ("Tshape", ty(DType::Int32))];
        let gathered = self.add(spot, "of_tasks", "Reshape", &[&gathered, &rows], &reshape)?;
        let axis = self.number(spot, "of_tasks/axis", DType::Int32, 0)?;
        let attrs = [("T", ty(dtype)), ("Tidx", ty(DType::Int32)), ("keep_dims", Value::B(false))];
        Ok((self.add(spot, "mean", "Mean", &[&gathered, &axis], &attrs)?, prepare))
    }

    /// A variable for what rounding lost: its handle, its value, and the node that sets it to zero.
    fn residual(&mut self, spot: &Spot, first: &Learner<'_>, bundle: &Bundle) -> Result<(String, String, String)> {
        let size = self.packed_size(bundle);
        let Some(size) = size else {
            return Err(unimplemented_op!(
                "Variable \"{}\" has no full shape, so HorovodCompressorEF cannot keep what is lost; use HorovodCompressor",
                first.variable.name
            ));
        };
        let name = "AutoDist-residual";
        let dtype = ty(bundle.dtype);
        let mut handle = NodeDef { name: spot.name(name), op: "VarHandleOp".to_owned(), ..NodeDef::default() };
        handle.device.clone_from(&spot.device);
        let shared = format!("{}/{}/{name}", self.job.strategy.id, first.op_name());
        set(
            &mut handle,
            &[
                ("dtype", dtype.clone()),
                ("shape", Value::Shape(super::nodes::shape(&[size]))),
                ("container", bytes("")),
                ("shared_name", bytes(&shared)),
            ],
        );
        let handle = self.out.add(handle)?;
        let read = self.add(spot, "residual", "ReadVariableOp", &[&handle], &[("dtype", dtype.clone())])?;
        let length = self.vector(spot, "residual/length", DType::Int64, &[i64::try_from(size).unwrap_or(i64::MAX)])?;
        let zero = self.number(spot, "residual/zero", bundle.dtype, 0)?;
        let fill = [("T", dtype.clone()), ("index_type", ty(DType::Int64))];
        let zeros = self.add(spot, "residual/zeros", "Fill", &[&length, &zero], &fill)?;
        let set = self.add(spot, "residual/set", "AssignVariableOp", &[&handle, &zeros], &[("dtype", dtype)])?;
        Ok((handle, read, set))
    }
}
