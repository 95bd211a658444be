use super::*;

fn load(chosen: [f64; 2], probability: [f64; 2]) -> RouterLoad {
    RouterLoad {
        tokens: 4.0,
        chosen: chosen.to_vec(),
        probability: probability.to_vec(),
        entropy: 0.5,
        replayed: 3.0,
        changed: 1.0,
    }
}

#[test]
fn an_even_load_has_a_balance_of_one_choice_and_an_uneven_one_more() {
    assert_eq!(load([2.0, 2.0], [2.0, 2.0]).balance_loss(), 1.0);
    assert_eq!(load([4.0, 0.0], [3.0, 1.0]).balance_loss(), 1.5);
    assert_eq!(load([4.0, 0.0], [3.0, 1.0]).balance_slopes(0.5), [0.25, 0.0]);
    assert_eq!(RouterLoad::default().balance_loss(), 0.0);
}

#[test]
fn loads_are_summed_and_travel_as_numbers() {
    let (one, other) = (load([4.0, 0.0], [3.0, 1.0]), load([1.0, 3.0], [2.0, 2.0]));
    let sum = RouterLoad::sum([&one, &other]);
    assert_eq!((sum.tokens, sum.entropy), (8.0, 1.0));
    assert_eq!((sum.replayed, sum.changed), (6.0, 2.0));
    assert_eq!((&sum.chosen[..], &sum.probability[..]), (&[5.0, 3.0][..], &[5.0, 3.0][..]));
    let numbers: Vec<f64> = sum.numbers().collect();
    assert_eq!(RouterLoad::from_numbers(&numbers), sum);
}
