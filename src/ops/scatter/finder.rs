//! The choice among the ways to find the terms of a row.

use super::buckets::Buckets;
use super::direct::Direct;
use super::lists::Lists;
use super::runs::Runs;
use super::search::Search;
use super::spread::Spread;
use super::sweep::Sweep;
use super::*;
use crate::ops::kernels::occupancy::LINE;
use crate::ops::movement::gather::Columns;

/// Maximum number of indices of which a block lists all terms.
const FEW: u64 = 256;
/// Number of indices above which lists in memory take long, since a popular row has a long list.
const MANY: u64 = 1 << 16;

/// Minimum size in bytes of rows whose positions are sorted: the packs of half a warp, or a cache line if there are more than [`MANY`] indices.
/// For shorter rows, sorting moves more bytes than adding.
const WIDE: [u64; 2] = [256, LINE];

/// Time of a [`Sweep`] beside that of a [`Direct`] with few terms, in the times that a thread of the latter takes to read terms of a popular
/// row; and that of reading them once in a `Sweep`, which adds them in shared memory.
const STEPS_OF_SWEEP: u64 = 3;
const READING_OF_SWEEP: u64 = 2;

/// The way in which a kernel finds the terms of a row.
#[derive(Clone, Copy, Debug)]
pub enum Finder {
    /// Warps compare all indices with one row each, and add its terms.
    Direct(Direct),
    /// Blocks list the terms of their rows, and add them to sums in shared memory.
    Sweep(Sweep),
    /// Blocks search all indices for the terms of their rows.
    Search(Search),
    /// Blocks list the terms of rows spread over the output, and divide them among threads.
    Spread(Spread),
    /// Blocks add the terms of consecutive rows, which they find in tiles of sorted positions.
    Buckets(Buckets),
    /// Kernels make a list of the terms of each row, and add them.
    Lists(Lists),
    /// Kernels sort the positions of indices by row; blocks add windows of them.
    Runs(Runs),
    /// Kernels sort the positions of indices by row.
    Sort(RowSort),
    /// A kernel finds the last position of each row.
    Last,
}

impl Finder {
    /// Returns the way that is fastest for even indices; for large operations the one whose time depends least on how often indices name a
    /// row. `sparse` means that most rows of a contiguous output have no term.
    pub fn of(spec: &Spec, columns: &Columns, sparse: bool) -> Finder {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let (rows, count) = (y.dims[0], i.elements());
        let search = Search::of(spec, columns, sparse);
        if spec.attrs.word("combine") != "add" {
            let last = (!sparse).then_some(Finder::Last);
            return search.map(Finder::Search).or(last).unwrap_or_else(|| Finder::Sort(RowSort::of(count, rows)));
        }
        let row = columns.length * x.dtype.size();
        let runs = Runs::of(spec, columns, sparse).filter(|_| row >= WIDE[usize::from(count > MANY)]);
        // Whether the operation moves this many times as many bytes as memory does in the time of the launches that sort positions.
        let moves = |times: u64| runs.is_some_and(|runs| x.bytes() + y.bytes() >= times * runs.bytes_of_launches());
        // Blocks that search many indices for terms spend as much time on them, and several waves even more.
        let clears_meanwhile = runs.is_some_and(|runs| runs.clears_meanwhile());
        let clears = count > FEW && clears_meanwhile;
        let is_deep = row >= WIDE[0] && search.is_some_and(|search| search.is_one_wave() && !search.reads_at_once());
        // A search whose blocks do not clear their own rows writes zeros in packs of any alignment, as warps with one row each do.
        let never_clears = search.is_some_and(|search| !search.clears());
        let instead_of_direct = moves(2) && clears_meanwhile && never_clears;
        let instead_of_search =
            instead_of_direct || moves(2) && (clears || is_deep) || moves(1) && clears && never_clears;
        let instead_of_lists = if count > MANY { moves(1) } else { !sparse && moves(3) };
        // Lists of terms are faster than several waves of searches, unless most rows have none.
        let is_fast = |search: &Search| sparse || search.is_one_wave();
        let sweep = Sweep::of(spec, columns);
        // If all indices name one row.
        let is_slow = |direct: &Direct| {
            sweep.is_some_and(|sweep| direct.batches() >= STEPS_OF_SWEEP + READING_OF_SWEEP * sweep.batches())
        };
        Direct::of(spec, columns)
            .filter(|direct| !instead_of_direct && !is_slow(direct))
            .map(Finder::Direct)
            .or_else(|| sweep.map(Finder::Sweep))
            .or_else(|| runs.filter(|_| instead_of_search).map(Finder::Runs))
            .or_else(|| search.filter(is_fast).map(Finder::Search))
            .or_else(|| runs.filter(|_| instead_of_lists).map(Finder::Runs))
            .or_else(|| Spread::of(spec, columns).map(Finder::Spread))
            .or_else(|| Lists::of(spec, columns).map(Finder::Lists))
            .or_else(|| search.map(Finder::Search))
            // Each block that shares a row would group the same positions.
            .or_else(|| runs.filter(Runs::divides_rows).map(Finder::Runs))
            .or_else(|| Buckets::of(spec, columns).map(Finder::Buckets))
            .unwrap_or_else(|| Finder::Sort(RowSort::of(count, rows)))
    }

    /// The cost of each launch; empty if only the cost of all launches together is known.
    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        match self {
            Finder::Direct(direct) => direct.launch_costs(spec),
            Finder::Sweep(sweep) => sweep.launch_costs(spec),
            Finder::Search(search) => search.launch_costs(spec),
            Finder::Spread(spread) => spread.launch_costs(spec),
            Finder::Lists(lists) => lists.launch_costs(spec),
            Finder::Runs(runs) => runs.launch_costs(spec),
            Finder::Buckets(buckets) => buckets.launch_costs(spec),
            Finder::Sort(_) | Finder::Last => Vec::new(),
        }
    }

    /// Returns the kernels; `None` for those of [`Scatter`] itself.
    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Option<Vec<Launch>> {
        match self {
            Finder::Direct(direct) => Some(direct.launches(spec, columns)),
            Finder::Sweep(sweep) => Some(sweep.launches(spec, columns)),
            Finder::Search(search) => Some(search.launches(spec, columns)),
            Finder::Spread(spread) => Some(spread.launches(spec, columns)),
            Finder::Lists(lists) => Some(lists.launches(spec, columns)),
            Finder::Runs(runs) => Some(runs.launches(spec, columns)),
            Finder::Buckets(buckets) => Some(buckets.launches(spec, columns)),
            Finder::Sort(_) | Finder::Last => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_found_in_the_way_that_takes_least_time() {
        let finder = |dtype, count, inner, rows| {
            let inputs = vec![Tensor::packed(dtype, &[count, inner]), Tensor::packed(DType::I32, &[count])];
            let attrs = Attrs::of([("combine", Attr::Word("add"))]);
            let spec = Spec::new(&Scatter, attrs, inputs, vec![Tensor::packed(dtype, &[rows, inner])]);
            Split::of(&spec).finder
        };
        assert!(matches!(finder(DType::F16, 315, 208, 597), Finder::Direct(_)));
        assert!(matches!(finder(DType::BF16, 237, 61, 32768), Finder::Search(search) if search.is_one_wave()));
        // A thread of the first kernel would read the terms of a popular row ten times.
        assert!(matches!(finder(DType::F32, 73, 58, 1550), Finder::Sweep(_)));
        assert!(matches!(finder(DType::F16, 3762, 2, 81_433), Finder::Sweep(_)));
        assert!(matches!(finder(DType::F32, 856, 4096, 1232), Finder::Lists(_)));
        // Narrow rows that indices name by Zipf's law.
        assert!(matches!(finder(DType::F32, 6841, 55, 2000), Finder::Spread(_)));
        assert!(matches!(finder(DType::F32, 23_939, 16, 3000), Finder::Spread(_)));
        // Wide rows that indices name by Zipf's law.
        assert!(matches!(finder(DType::BF16, 3423, 4472, 12888), Finder::Runs(_)));
        assert!(matches!(finder(DType::F32, 87_196, 125, 4096), Finder::Runs(_)));
        assert!(matches!(finder(DType::BF16, 278_146, 120, 4096), Finder::Runs(_)));
        // Even narrower rows, for which sorting takes longer than adding.
        assert!(matches!(finder(DType::F32, 500_000, 16, 20_000), Finder::Buckets(_)));
        // A kernel sets most rows of any alignment to zero in whole packs.
        assert!(matches!(finder(DType::F16, 87, 283, 71_113), Finder::Runs(_)));
    }
}
