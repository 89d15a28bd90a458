//! Work that shares capacities: bandwidth of memories, links and network cards.
//!
//! A flow at full speed takes a share of each capacity that it uses, its demand. Capacities are divided by dominant
//! resource fairness (Ghodsi et al., NSDI 2011): the dominant share of all flows grows at the same pace until a flow
//! runs at full speed or a capacity is exhausted. With one capacity this is max-min fairness.
//!
//! Times are whole nanoseconds, and only differences of times matter, so that a repetition at a later time gives
//! exactly the same results.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::digest::Digest;
use super::numbers::Time;
use super::slots::Slots;

/// Number of a capacity.
pub type CapacityId = u32;

/// Number of a flow; reused after its end.
pub type FlowId = u32;

/// Factor by which rounding may make a sum of demands exceed a capacity that is not contended.
const ROUNDING: f64 = 1.0 + 1e-9;

/// Panic message for a missing flow.
const MISSING_FLOW: &str = "capacities know flows that are under way";

/// Minimum speed of a flow as a share of its full speed, so that rounding never stops a flow.
const MIN_SPEED: f64 = 1e-9;

/// Use of a capacity by a flow at full speed, as a share from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    pub resource: CapacityId,
    pub share: f64,
}

#[derive(Clone, Debug)]
struct SimFlow<T> {
    owner: T,
    /// Time in ns that the flow would still take at full speed, as of the time `at`.
    left: f64,
    at: Time,
    /// Speed as a share of the full speed; 0 before the first assignment.
    rate: f64,
    demands: Vec<Demand>,
    /// The largest share among the flow's demands.
    dominant: f64,
    /// Version of the flow's end, by which outdated entries of the heap are recognized.
    version: u64,
    /// The last round of [`Flows::update_rates`] that visited the flow.
    seen: u64,
}

#[derive(Clone, Debug, Default)]
struct Capacity {
    /// Flows that use the capacity, in the order of their numbers, each with its share at full speed.
    users: Vec<(FlowId, f64)>,
    seen: u64,
}

impl Capacity {
    /// True if the flows would need more than the capacity at full speed.
    fn contended(&self) -> bool {
        self.users.iter().map(|(_, share)| share).sum::<f64>() > ROUNDING
    }
}

/// Flows and the capacities that they share. `T` identifies a flow's owner.
#[derive(Debug)]
pub struct Flows<T> {
    flows: Slots<SimFlow<T>>,
    capacities: Vec<Capacity>,
    /// Ends of flows with their versions, the earliest first.
    ends: BinaryHeap<Reverse<(Time, FlowId, u64)>>,
    version: u64,
    round: u64,
}

impl<T: Copy> Flows<T> {
    /// Creates this many capacities without flows.
    pub fn new(resources: usize) -> Self {
        Flows {
            flows: Slots::default(),
            capacities: vec![Capacity::default(); resources],
            ends: BinaryHeap::new(),
            version: 0,
            round: 0,
        }
    }

    /// Adds a capacity, and returns its number.
    pub fn resource(&mut self) -> CapacityId {
        self.capacities.push(Capacity::default());
        self.capacities.len() as u32 - 1
    }

    /// Time at which the next flow ends if nothing changes before; `None` if there are no flows.
    pub fn next(&mut self) -> Option<Time> {
        while let Some(&Reverse((time, id, version))) = self.ends.peek() {
            if self.flows.get(id).is_some_and(|flow| flow.version == version) {
                return Some(time);
            }
            self.ends.pop();
        }
        None
    }

    /// Adds a flow that takes `time` ns at full speed. `demands` contains each capacity at most once.
    pub fn add(&mut self, now: Time, owner: T, time: f64, demands: Vec<Demand>) {
        let dominant = demands.iter().map(|demand| demand.share).fold(0.0, f64::max);
        let id =
            self.flows.add(SimFlow { owner, left: time, at: now, rate: 0.0, demands, dominant, version: 0, seen: 0 });
        for &Demand { resource, share } in self.flows.get(id).into_iter().flat_map(|flow| &flow.demands) {
            let users = &mut self.capacities[resource as usize].users;
            let index = users.partition_point(|(user, _)| *user < id);
            users.insert(index, (id, share));
        }
        self.update_rates(now, Some(id), Vec::new());
    }

    /// Removes the flow that ends first. Returns its owner, and the part of its time at full speed, in ns, that
    /// rounding the end to a whole ns has cut off; negative if rounding has added to it. `None` if there are no flows.
    pub fn finish(&mut self) -> Option<(T, f64)> {
        let now = self.next()?;
        let Reverse((_, id, _)) = self.ends.pop()?;
        let flow = self.flows.remove(id)?;
        let mut freed = Vec::new();
        for &Demand { resource, .. } in &flow.demands {
            let capacity = &mut self.capacities[resource as usize];
            if capacity.contended() {
                freed.push(resource);
            }
            capacity.users.retain(|(user, _)| *user != id);
        }
        self.update_rates(now, None, freed);
        Some((flow.owner, flow.left - (now - flow.at) as f64 * flow.rate))
    }

    /// Adds the flows to a digest; `owner` adds the owner of one.
    pub fn digest(&self, digest: &mut Digest, owner: impl Fn(&mut Digest, T)) {
        digest.size(self.flows.iter().count());
        for (id, flow) in self.flows.iter() {
            let SimFlow { owner: whose, left, at, rate, demands, dominant: _, version: _, seen: _ } = flow;
            digest.word(id);
            owner(digest, *whose);
            digest.numbers([*left, *rate]);
            digest.moment(*at);
            digest.size(demands.len());
            for &Demand { resource, share } in demands {
                digest.word(resource);
                digest.number(share);
            }
        }
    }

    fn flow(&self, id: FlowId) -> &SimFlow<T> {
        self.flows.get(id).expect(MISSING_FLOW)
    }

    /// Computes new speeds after a change: of a flow that has begun, of the users of capacities that are no longer
    /// full, and of all flows that share contended capacities with these.
    fn update_rates(&mut self, now: Time, begun: Option<FlowId>, freed: Vec<CapacityId>) {
        self.round += 1;
        let round = self.round;
        let mut flows: Vec<FlowId> = begun.into_iter().collect();
        let mut resources = freed;
        resources.iter().for_each(|&resource| self.capacities[resource as usize].seen = round);
        for &id in &flows {
            self.flows.get_mut(id).expect(MISSING_FLOW).seen = round;
        }
        let (mut next_flow, mut next_resource) = (0, 0);
        loop {
            if let Some(&id) = flows.get(next_flow) {
                next_flow += 1;
                for demand in &self.flow(id).demands {
                    let capacity = &self.capacities[demand.resource as usize];
                    if capacity.seen != round && capacity.contended() {
                        resources.push(demand.resource);
                    }
                }
                resources[next_resource..].iter().for_each(|&resource| self.capacities[resource as usize].seen = round);
            } else if let Some(&resource) = resources.get(next_resource) {
                next_resource += 1;
                for &(id, _) in &self.capacities[resource as usize].users {
                    let flow = self.flows.get_mut(id).expect(MISSING_FLOW);
                    if flow.seen != round {
                        flow.seen = round;
                        flows.push(id);
                    }
                }
            } else {
                break;
            }
        }
        resources.retain(|&resource| self.capacities[resource as usize].contended());
        for (id, rate) in self.rates(flows, resources) {
            self.set_rate(now, id, rate);
        }
    }

    /// Speeds, by progressive filling, of a set of flows of which none shares a contended capacity with a flow outside
    /// of the set.
    fn rates(&self, mut flows: Vec<FlowId>, mut contended: Vec<CapacityId>) -> Vec<(FlowId, f64)> {
        flows.sort_unstable();
        contended.sort_unstable();
        // Sort, so that the order of simultaneous ends does not depend on the traversal.
        let mut rates: Vec<(FlowId, Option<f64>)> = flows.into_iter().map(|id| (id, None)).collect();
        while !contended.is_empty() {
            // The capacity that is exhausted first fixes the speeds of its users.
            let levels = contended.iter().map(|&resource| self.level(&rates, resource));
            let least = levels.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
            let (place, level) = least.expect("there is one at least");
            let resource = contended.remove(place);
            for &(id, _) in &self.capacities[resource as usize].users {
                if let Ok(place) = rates.binary_search_by_key(&id, |(id, _)| *id)
                    && rates[place].1.is_none()
                {
                    rates[place].1 = Some((level / self.flow(id).dominant).clamp(MIN_SPEED, 1.0));
                }
            }
        }
        rates.into_iter().map(|(id, rate)| (id, rate.unwrap_or(1.0))).collect()
    }

    /// The dominant share at which flows without a fixed speed exhaust a capacity; infinite if they cannot exhaust it.
    fn level(&self, rates: &[(FlowId, Option<f64>)], resource: CapacityId) -> f64 {
        let mut left = 1.0;
        // Dominant share of each unfixed flow, and its share of this capacity.
        let mut takers: Vec<(f64, f64)> = Vec::new();
        for &(id, share) in &self.capacities[resource as usize].users {
            let index = rates.binary_search_by_key(&id, |(id, _)| *id).expect("all users of it were found");
            match rates[index].1 {
                Some(rate) => left -= share * rate,
                None => takers.push((self.flow(id).dominant, share)),
            }
        }
        takers.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Growth of the total demand per unit of dominant share, of flows below full speed.
        let mut slope: f64 = takers.iter().map(|(dominant, share)| share / dominant).sum();
        for (dominant, share) in takers {
            let level = f64::max(left, 0.0) / slope;
            if level <= dominant {
                return level;
            }
            left -= share;
            slope -= share / dominant;
        }
        f64::INFINITY
    }

    fn set_rate(&mut self, now: Time, id: FlowId, rate: f64) {
        self.version += 1;
        let flow = self.flows.get_mut(id).expect(MISSING_FLOW);
        if flow.rate == rate {
            return;
        }
        flow.left = (flow.left - (now - flow.at) as f64 * flow.rate).max(0.0);
        flow.at = now;
        flow.rate = rate;
        flow.version = self.version;
        let end = now + (flow.left / flow.rate).round() as Time;
        self.ends.push(Reverse((end, id, flow.version)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start of a flow, its duration at full speed, and its demands.
    type Drawn<'a> = (Time, f64, &'a [(CapacityId, f64)]);

    /// Returns the ends of flows.
    fn ends(flows: &[Drawn]) -> Vec<(u32, Time)> {
        let mut state = Flows::new(4);
        let mut ends = Vec::new();
        for (id, &(start, time, demands)) in flows.iter().enumerate() {
            while state.next().is_some_and(|end| end <= start) {
                let end = state.next().unwrap();
                ends.push((state.finish().unwrap().0, end));
            }
            let demands = demands.iter().map(|&(resource, share)| Demand { resource, share }).collect();
            state.add(start, id as u32, time, demands);
        }
        while let Some(end) = state.next() {
            ends.push((state.finish().unwrap().0, end));
        }
        ends
    }

    #[test]
    fn two_that_need_everything_have_half_each() {
        assert_eq!(ends(&[(0, 10.0, &[(0, 1.0)]), (0, 30.0, &[(0, 1.0)])]), [(0, 20), (1, 40)]);
    }

    #[test]
    fn small_demands_are_met() {
        // The first needs a fifth and gets it; the second has the rest: 0.8 of full speed until the first ends.
        assert_eq!(ends(&[(0, 10.0, &[(0, 0.2)]), (0, 16.0, &[(0, 1.0)])]), [(0, 10), (1, 18)]);
    }

    #[test]
    fn the_scarcest_capacity_decides_and_others_have_what_is_left() {
        // The first and the second share capacity 0; the second and the third share 1, of which the second uses little.
        let flows: [Drawn; 3] = [(0, 100.0, &[(0, 1.0)]), (0, 100.0, &[(0, 1.0), (1, 0.5)]), (0, 100.0, &[(1, 1.0)])];
        // Half of 0 each; of 1 the second takes a quarter, and the third has three. At 133 it ends; the others at 200.
        assert_eq!(ends(&flows), [(2, 133), (0, 200), (1, 200)]);
    }

    #[test]
    fn rates_rise_when_a_flow_ends() {
        let flows: [Drawn; 3] = [(0, 100.0, &[(0, 1.0)]), (50, 25.0, &[(0, 1.0)]), (50, 10.0, &[(3, 1.0)])];
        // The second flow takes 50 at half speed, in which the first one does 25; flows over other capacities are not
        // affected.
        assert_eq!(ends(&flows), [(2, 60), (1, 100), (0, 125)]);
    }

    mod properties {
        use proptest::prelude::*;

        use super::*;

        fn flow() -> impl Strategy<Value = (f64, Vec<(CapacityId, f64)>)> {
            let demand = (0u32..4, 1u32..=100).prop_map(|(resource, percent)| (resource, f64::from(percent) / 100.0));
            let demands = prop::collection::vec(demand, 0..4).prop_map(|mut demands| {
                demands.sort_by_key(|demand| demand.0);
                demands.dedup_by_key(|demand| demand.0);
                demands
            });
            (1.0..1e4, demands)
        }

        proptest! {
            /// No capacity is exceeded. A flow is slower than full speed only if a capacity that it uses is exhausted,
            /// on which no other flow has a larger dominant share.
            #[test]
            fn shares_are_fair_and_whole(flows in prop::collection::vec(flow(), 1..12)) {
                let mut state = Flows::new(4);
                for (id, (time, demands)) in flows.iter().enumerate() {
                    let demands = demands.iter().map(|&(resource, share)| Demand { resource, share }).collect();
                    state.add(0, id, *time, demands);
                }
                while state.next().is_some() {
                    let live: Vec<&SimFlow<usize>> = state.flows.iter().map(|(_, flow)| flow).collect();
                    let share = |flow: &SimFlow<usize>, resource| flow.demands.iter()
                        .filter(|demand| demand.resource == resource).map(|demand| demand.share).sum::<f64>();
                    let used = |resource| live.iter().map(|flow| flow.rate * share(flow, resource)).sum::<f64>();
                    for resource in 0..4 {
                        prop_assert!(used(resource) <= 1.0 + 1e-6, "{} of {resource}", used(resource));
                    }
                    for flow in &live {
                        prop_assert!(flow.rate > 0.0 && flow.rate <= 1.0);
                        let level = flow.rate * flow.dominant;
                        let largest = |resource| live.iter().filter(|other| share(other, resource) > 0.0)
                            .map(|other| other.rate * other.dominant).fold(0.0, f64::max);
                        let held = flow.demands.iter().any(|demand| {
                            used(demand.resource) > 1.0 - 1e-6 && largest(demand.resource) <= level + 1e-6
                        });
                        prop_assert!(flow.rate > 1.0 - 1e-9 || held, "{flow:?}");
                    }
                    state.finish();
                }
            }

            /// The same flows take equally long if they begin later.
            #[test]
            fn a_later_beginning_changes_nothing(
                flows in prop::collection::vec((0i64..1000, flow()), 1..12),
                later in 0i64..1_000_000_000_000,
            ) {
                let mut flows = flows;
                flows.sort_by_key(|flow| flow.0);
                let at = |offset: Time| {
                    let list: Vec<Drawn> =
                        flows.iter().map(|(start, (time, demands))| (start + offset, *time, &demands[..])).collect();
                    ends(&list).into_iter().map(|(id, end)| (id, end - offset)).collect::<Vec<_>>()
                };
                prop_assert_eq!(at(0), at(later));
            }
        }
    }
}
