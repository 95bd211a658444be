//! Losses per token.
use candle_core::{Result, Tensor};
use crate::config::{Aggregation, Kl};
/// Clip coefficients `[N]`.
pub struct Clip { /// low
    pub low: Tensor, /// high
    pub high: Tensor, /// dual
    pub dual: Tensor }
/// Stats
#[derive(Debug, Clone, Copy, Default)]
pub struct SurrogateStats { /// n
    pub tokens: u64, /// n
    pub clipped_low: u64, /// n
    pub clipped_high: u64, /// n
    pub clipped_dual: u64, /// s
    pub old_minus_new: f64 }
impl SurrogateStats { /// add
 pub fn add(&mut self, o:&Self){ self.tokens+=o.tokens; self.clipped_low+=o.clipped_low; self.clipped_high+=o.clipped_high; self.clipped_dual+=o.clipped_dual; self.old_minus_new+=o.old_minus_new; } }
/// s
pub fn clipped_surrogate(logp:&Tensor, old:&Tensor, adv:&Tensor, clip:&Clip)->Result<Tensor>{
    let ratio=(logp-old)?.exp()?;
    let l1=(&ratio*adv)?.neg()?;
    let c=ratio.maximum(&(1.0-&clip.low)?)?.minimum(&(1.0+&clip.high)?)?;
    let l2=(c*adv)?.neg()?;
    let l=l1.maximum(&l2)?;
    let bound=(adv*&clip.dual)?.neg()?;
    let neg=adv.lt(0f64)?;
    neg.where_cond(&l.minimum(&bound)?, &l)
}
/// st
pub fn surrogate_stats(logp:&Tensor, old:&Tensor, _adv:&Tensor, _clip:&Clip)->Result<SurrogateStats>{
    let d=(old-logp)?.to_vec1::<f32>()?; Ok(SurrogateStats{tokens:d.len() as u64, old_minus_new:d.iter().map(|&x| f64::from(x)).sum(), ..Default::default()})
}
/// kl
pub fn kl(kind:Kl, logp:&Tensor, r:&Tensor)->Result<Tensor>{ let d=(logp-r)?; match kind { Kl::K1=>Ok(d), Kl::K2=>(d.sqr()?*0.5), Kl::K3=>{let n=d.neg()?; (n.exp()?-&n)?-1.0} } }
/// tw
pub fn token_weights(lengths:&[usize], agg:Aggregation)->Vec<f32>{ let total:usize=lengths.iter().sum(); let rows=lengths.len() as f64; lengths.iter().flat_map(|&n| { let w=match agg { Aggregation::TokenMean=>1.0/total as f64, Aggregation::SequenceMean=>1.0/(rows*n as f64), Aggregation::SequenceSum=>1.0/rows}; std::iter::repeat_n(w as f32, n)}).collect() }
