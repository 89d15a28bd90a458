//! Kernels that copy operands to matrices in the workspace, and results from there.

use super::super::super::layout::in_packs;
use super::*;

impl Composed<'_> {
    /// Returns the kernel that copies the rows of operands to the matrices in the workspace; or with `is_result` those of the results from
    /// there. A block copies the rows of one number: those of a row of scores, and of a key. It belongs to one head of keys, from head
    /// `first` on.
    pub(super) fn gathering_kernel(&self, first: u64, units: u64, is_result: bool) -> Kernel {
        let gathered = self.gathered_operands(is_result);
        let operands: Vec<Operand> = gathered.iter().map(|&(_, one)| one).collect();
        let of_a_unit = operands.iter().map(|one| self.copy_of(one).2).max().unwrap_or(0);
        let mut params = self.operand_params(&operands, |_| Some(self.shape.axes));
        let regions = self.regions(self.at_once);
        params.extend(size_params(&self.shape, &[("of_a_unit", of_a_unit)]));
        params.extend([param("u8* workspace", Arg::Workspace(regions.end)), u64_param("first", first)]);
        let (mut body, mut longest) = (text::GATHERED_ROW.to_owned(), 1);
        for (place, one) in gathered {
            let (name, tensor, rows) = (one.name, self.tensor(&one), self.rows_of(&one));
            let (width, dtype) = (tensor.dims[tensor.dims.len() - 1], c_type(tensor.dtype));
            let (copy_dtype, copy_width, copy_rows) = self.copy_of(&one);
            let most = 16 / tensor.dtype.size();
            let pack = if in_packs(&tensor, most) { most } else { 1 };
            let row = match one.shared {
                true => format!("(i64)own * s_{name}.query"),
                false => format!("place_of_row(s_{name}, own, queries)"),
            };
            let outside = format!("{name} + at[at_{name}] + {row}");
            let first = format!("(number * {copy_rows}u + own) * {copy_width}u");
            let gathered = format!("({}*)(workspace + {name}_at) + {first}", c_type(copy_dtype));
            let (from, to) = if is_result { (gathered, outside) } else { (outside, gathered) };
            body += &match (self.gathered, is_result) {
                (Gathered::Parts, false) => {
                    let order = parts::order(one.shared);
                    let sizes = format!("own < {rows}u ? {width}u : 0u, {}u", padded(width));
                    format!("  if (own < {copy_rows}u) divide_row<{pack}, {order}>({from}, {to}, {sizes});\n")
                }
                (Gathered::Parts, true) => {
                    let sizes = format!("{width}u, {}u", padded(width));
                    format!("  if (own < {rows}u) add_parts<{pack}>({from}, {to}, {sizes});\n")
                }
                _ => format!("  if (own < {rows}u) copy_row<{dtype}, {pack}>({from}, {to}, {width}u);\n"),
            };
            params.push(u64_param(&format!("{name}_at"), regions.gathered[place]));
            longest = longest.max(width / pack);
        }
        let (before, threads) = self.definitions(&operands, 4 * longest);
        let before =
            format!("{before}{}", if self.gathered == Gathered::Parts { text::PARTS_OF_ROWS } else { text::COPY });
        let name = if is_result { "attention_results" } else { "attention_queries" };
        kernel(name, &before, &params, &body, units * of_a_unit, threads)
    }

    /// Returns the operands, or results, that have copies by [`Composed::gathering_kernel`], each with its index in
    /// [`Composed::matrices`].
    pub(super) fn gathered_operands(&self, is_result: bool) -> Vec<(usize, Operand)> {
        let all = self.matrices.iter().copied().enumerate();
        all.filter(|(place, one)| self.is_gathered(*place) && self.is_result(one) == is_result).collect()
    }

    /// Returns the kernel that copies the keys and values of `units` heads, from number `first` on, and adds keys of
    /// zeros. Each block copies one key.
    pub(super) fn padding_kernel(&self, first: u64, units: u64) -> Kernel {
        let Shape { size, value_size, .. } = self.shape;
        let operands = [operand(1, "k", true), operand(2, "v", true)];
        let moves = |one: &Operand| in_packs(&self.tensor(one), PACK);
        let pack = if operands.iter().all(moves) { PACK } else { 1 };
        let mut params = self.operand_params(&operands, |_| Some(self.shape.axes));
        let regions = self.regions(self.at_once);
        params.extend(size_params(&self.shape, &[]));
        params.extend([
            param("u8* workspace", Arg::Workspace(regions.end)),
            u64_param("keys_at", regions.keys),
            u64_param("values_at", regions.values),
            u64_param("columns", self.columns()),
            u64_param("first", first),
        ]);
        let (before, threads) = self.definitions(&operands, 4 * size.max(value_size) / pack);
        let before = format!("{before}#define PACK {pack}\n");
        kernel("attention_padding", &before, &params, text::PADDING, units * self.columns(), threads)
    }

    /// Returns the kernel that rounds the sums of the gradients of keys and values of `units` heads, from number
    /// `first` on. Each block rounds those of one key.
    pub(super) fn rounding_kernel(&self, first: u64, units: u64) -> Kernel {
        let operands: Vec<Operand> =
            self.matrices.iter().copied().filter(|one| one.shared && one.index >= self.spec.inputs.len()).collect();
        let mut params = self.operand_params(&operands, |_| Some(self.shape.axes));
        let regions = self.regions(self.at_once);
        params.extend(size_params(&self.shape, &[]));
        params.extend([
            param("u8* workspace", Arg::Workspace(regions.end)),
            u64_param("key_sums_at", regions.key_sums),
            u64_param("value_sums_at", regions.value_sums),
            u64_param("key_rows", self.keys()),
            u64_param("first", first),
        ]);
        let (before, threads) = self.definitions(&operands, self.shape.size.max(self.shape.value_size));
        kernel("attention_rounding", &before, &params, text::ROUNDING, units * self.shape.keys, threads)
    }
}
