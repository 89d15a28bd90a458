//! Copies between operands and the matrices of the rows of all heads that share keys.

use super::*;

impl Composed<'_> {
    /// Returns the kernel that copies rows of the queries, and of other operands with as many rows, to the matrices in the workspace; or
    /// with `is_result` those of the results from there. Each block copies the rows of one row of scores, from head of keys `first` on.
    pub(super) fn gathering_kernel(&self, first: u64, units: u64, is_result: bool) -> Kernel {
        let inputs = self.spec.inputs.len();
        let (places, operands): (Vec<usize>, Vec<Operand>) = (0..)
            .zip(&self.matrices)
            .filter(|(_, one)| !one.shared && (one.index >= inputs) == is_result)
            .map(|(place, one)| (place, *one))
            .unzip();
        let pack_of = |one: &Operand| {
            let tensor = self.tensor(one);
            let pack = 16 / tensor.dtype.size();
            if in_packs(&tensor, pack) { pack } else { 1 }
        };
        let packs: Vec<u64> = operands.iter().map(pack_of).collect();
        let mut params = self.operand_params(&operands, |_| Some(self.shape.axes));
        let regions = self.regions(self.at_once);
        params.extend(size_params(&self.shape, &[("rows", self.rows())]));
        params.extend([param("u8* workspace", Arg::Workspace(regions.end)), u64_param("first", first)]);
        let (mut body, mut longest) = (text::GATHERED_ROW.to_owned(), 1);
        for ((one, place), pack) in operands.iter().zip(places).zip(packs) {
            let (name, tensor) = (one.name, self.tensor(one));
            let (width, dtype) = (tensor.dims[tensor.dims.len() - 1], c_type(tensor.dtype));
            let outside = format!("{name} + at[at_{name}] + place_of_row(s_{name}, own, queries)");
            let gathered = format!("({dtype}*)(workspace + {name}_at) + number * {width}u");
            let (from, to) = if is_result { (gathered, outside) } else { (outside, gathered) };
            body += &format!("  copy_row<{dtype}, {pack}>({from}, {to}, {width}u);\n");
            params.push(u64_param(&format!("{name}_at"), regions.gathered[place]));
            longest = longest.max(width / pack);
        }
        let (before, threads) = self.definitions(&operands, 4 * longest);
        let before = format!("{before}{}", text::COPY);
        let name = if is_result { "attention_results" } else { "attention_queries" };
        kernel(name, &before, &params, &body, units * self.rows(), threads)
    }
}
