//! Affine functions of loop variables, such as `4 * l + i - 3`, which most indices are.

/// A sum of variables with integer factors and of a constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Affine {
    pub factors: Vec<i64>,
    pub constant: i64,
}

/// Number of points among which [`fit`] looks for pairs that differ in a single variable.
const COMPARED: usize = 64;

impl Affine {
    /// Value of the function for these values of the variables; saturates at the limits of `i64`.
    pub fn of(&self, variables: &[i64]) -> i64 {
        let product = |(factor, value): (&i64, &i64)| factor.saturating_mul(*value);
        self.factors.iter().zip(variables).map(product).fold(self.constant, i64::saturating_add)
    }

    /// Returns the function with the constant 0.
    pub fn without_constant(&self) -> Affine {
        Affine { constant: 0, ..self.clone() }
    }

    /// Formats the function with these variable names.
    pub fn text(&self, names: &[&str]) -> String {
        let term = |factor: i64, name: &str| match factor.unsigned_abs() {
            1 => name.to_owned(),
            factor => format!("{factor} * {name}"),
        };
        let terms = self.factors.iter().zip(names).filter(|(factor, _)| **factor != 0);
        let mut parts: Vec<(bool, String)> = terms.map(|(&factor, name)| (factor > 0, term(factor, name))).collect();
        if self.constant != 0 || parts.is_empty() {
            parts.push((self.constant >= 0, self.constant.unsigned_abs().to_string()));
        }
        // Positive terms first, so that no text starts with a minus if possible.
        parts.sort_by_key(|(plus, _)| !plus);
        let mut text = String::new();
        for (place, (plus, part)) in parts.iter().enumerate() {
            text += match (place, plus) {
                (0, true) => "",
                (0, false) => "-",
                (_, true) => " + ",
                (_, false) => " - ",
            };
            text += part;
        }
        text
    }
}

/// Returns the affine function through these points, each of which has the values of the variables and the result;
/// `None` if there is no such function. A variable that the points do not determine gets its factor in `hint`, or 0.
pub fn fit(points: &[(Vec<i64>, i64)], hint: Option<&Affine>) -> Option<Affine> {
    let (origin, value) = points.first()?;
    let count = origin.len();
    let compared = &points[..points.len().min(COMPARED)];
    let mut factors = Vec::with_capacity(count);
    for variable in 0..count {
        let alone = |a: &[i64], b: &[i64]| (0..count).all(|other| (a[other] == b[other]) == (other != variable));
        let pairs = compared.iter().enumerate().flat_map(|(place, a)| compared[..place].iter().map(move |b| (a, b)));
        let factor = match pairs.into_iter().find(|(a, b)| alone(&a.0, &b.0)) {
            Some(((a, of_a), (b, of_b))) => {
                let (rise, run) = (of_a.checked_sub(*of_b)?, a[variable].checked_sub(b[variable])?);
                (rise.checked_rem(run)? == 0).then(|| rise / run)?
            }
            None => hint.map_or(0, |hint| hint.factors[variable]),
        };
        factors.push(factor);
    }
    let mut found = Affine { factors, constant: 0 };
    found.constant = value.checked_sub(found.of(origin))?;
    points.iter().all(|(point, value)| found.of(point) == *value).then_some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sums_are_written_as_people_do() {
        let text = |factors: &[i64], constant| Affine { factors: factors.to_vec(), constant }.text(&["l", "i"]);
        assert_eq!(text(&[4, 1], -3), "4 * l + i - 3");
        assert_eq!(text(&[0, -1], 7), "7 - i");
        assert_eq!(text(&[-1, 0], -2), "-l - 2");
        assert_eq!(text(&[0, 0], 0), "0");
        assert_eq!(text(&[0, 1], 0), "i");
        assert_eq!(text(&[-2, 1], 0), "i - 2 * l");
    }

    proptest! {
        #[test]
        fn a_sum_is_found_from_its_values(factors in prop::collection::vec(-9i64..9, 1..4), constant in -99i64..99) {
            let sum = Affine { factors, constant };
            let count = sum.factors.len();
            let turns = (0..3i64.pow(count as u32)).map(|mut number| {
                (0..count).map(|_| { let digit = number % 3; number /= 3; digit }).collect::<Vec<i64>>()
            });
            let points: Vec<(Vec<i64>, i64)> = turns.map(|turn| (turn.clone(), sum.of(&turn))).collect();
            prop_assert_eq!(fit(&points, None), Some(sum.clone()));
            prop_assert_eq!(fit(&points[..1], Some(&sum)), Some(sum));
        }
    }

    #[test]
    fn non_affine_points_are_rejected() {
        let remainders: Vec<(Vec<i64>, i64)> = (0..6).map(|i| (vec![i], i % 3)).collect();
        assert_eq!(fit(&remainders, None), None);
        assert_eq!(fit(&[], None), None);
    }
}
