//! A capacity that what runs shares, and which nobody gets more of than it can use.

/// Something that uses a share of the capacity until its work is done.
#[derive(Clone, Copy, Debug)]
struct Flow {
    id: u32,
    /// Time that is left at full speed, in ns.
    left: f64,
    /// The share of the capacity that full speed takes.
    demand: f64,
    /// Speed, as a share of the full one.
    rate: f64,
}

/// Flows with max-min fair shares of one capacity: work between two changes goes on at constant rates.
#[derive(Debug, Default)]
pub struct Fluid {
    flows: Vec<Flow>,
    /// Up to when the work that is left is accounted for.
    at: f64,
    next: Option<(f64, u32)>,
}

impl Fluid {
    /// When the next flow ends, if nothing changes before.
    pub fn next(&self) -> Option<f64> {
        self.next.map(|(time, _)| time)
    }

    /// Adds a flow that takes `time` at full speed, which needs `demand` of the capacity, more than 0.
    pub fn add(&mut self, now: f64, id: u32, time: f64, demand: f64) {
        self.advance(now);
        let place = self.flows.partition_point(|flow| flow.demand <= demand);
        self.flows.insert(place, Flow { id, left: time, demand, rate: 1.0 });
        self.share();
    }

    /// Takes the flow that ends first out at its end, and returns it.
    pub fn finish(&mut self) -> Option<u32> {
        let (time, id) = self.next?;
        self.advance(time);
        self.flows.retain(|flow| flow.id != id);
        self.share();
        Some(id)
    }

    fn advance(&mut self, now: f64) {
        let passed = now - self.at;
        for flow in &mut self.flows {
            flow.left = (flow.left - passed * flow.rate).max(0.0);
        }
        self.at = now;
    }

    /// Gives out the capacity, from the smallest demand to the largest.
    fn share(&mut self) {
        let mut capacity = 1.0;
        let mut takers = self.flows.len() as f64;
        for flow in &mut self.flows {
            let given = flow.demand.min(capacity / takers);
            flow.rate = given / flow.demand;
            capacity -= given;
            takers -= 1.0;
        }
        self.next = self
            .flows
            .iter()
            .map(|flow| (self.at + flow.left / flow.rate, flow.id))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(flows: &[(f64, f64, f64)]) -> Vec<(u32, f64)> {
        let mut fluid = Fluid::default();
        let mut ends = Vec::new();
        for (id, &(start, time, demand)) in flows.iter().enumerate() {
            fluid.add(start, id as u32, time, demand);
        }
        while let Some(end) = fluid.next() {
            ends.push((fluid.finish().unwrap(), end));
        }
        ends
    }

    #[test]
    fn two_that_need_everything_take_turns_fairly() {
        assert_eq!(ends(&[(0.0, 10.0, 1.0), (0.0, 30.0, 1.0)]), [(0, 20.0), (1, 40.0)]);
    }

    #[test]
    fn small_demands_are_met() {
        // The first needs a fifth and gets it; the second has the rest: 0.8 of full speed until the first ends.
        let ends = ends(&[(0.0, 10.0, 0.2), (0.0, 16.0, 1.0)]);
        assert_eq!(ends[0], (0, 10.0));
        assert!((ends[1].1 - 18.0).abs() < 1e-9, "{ends:?}");
    }
}
