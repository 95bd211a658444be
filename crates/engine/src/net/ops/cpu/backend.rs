//! The CPU as a device on which models generate and are trained.

use std::borrow::Cow;

use maverl_kernels::embedding;
use maverl_kernels::logprob::cap_logits;
use maverl_kernels::sample::{BadLogits, Sampled, TokenDraw};
use rayon::prelude::*;

use super::project;
use crate::files::HfConfig;
use crate::net::kv::KvStore;
use crate::net::linear::OutputHead;
use crate::net::model::Model;
use crate::net::ops::{Backend, Cpu, Done, KvCache, TokenChoice};
use crate::net::pool::Pool;

impl KvCache for KvStore {
    fn count(&self) -> usize {
        self.len()
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn fill_window(&mut self, block: u32) {
        self.fill_window(block);
    }

    fn take_window(&mut self, block: u32) {
        self.take_window(block);
    }

    fn move_window(&mut self, blocks: [u32; 2]) {
        self.move_window(blocks);
    }

    fn free_window(&mut self) {
        self.free_window();
    }

    fn free_block(&mut self, block: u32) {
        self.free_block(block);
    }

    fn restore_block(&mut self, block: u32) {
        self.restore_block(block);
    }
}

impl Backend for Cpu {
    fn load(&self, host: Model, _: bool) -> Done<Model> {
        host.require_values()?;
        Ok(host.with_precision(self.precision))
    }

    fn host(&self, model: &Model) -> Done<Model> {
        Ok(model.clone())
    }

    fn store(&self, _: &Model, _: &Model) -> Done<()> {
        Ok(())
    }

    fn for_generation(&self, model: Model) -> Done<Model> {
        model.for_generation()
    }

    fn block_bytes(&self, config: &HfConfig) -> usize {
        KvStore::new(config).block_bytes()
    }

    fn window_bytes(&self, config: &HfConfig) -> usize {
        KvStore::new(config).window_bytes()
    }

    fn kv(&self, config: &HfConfig, _: usize) -> KvStore {
        KvStore::new(config)
    }

    fn add_block(&self, kv: &mut KvStore) -> Done<u32> {
        Ok(kv.add())
    }

    fn slot_bytes(&self, config: &HfConfig) -> usize {
        KvStore::new(config).slot_bytes()
    }

    fn add_slot(&self, kv: &mut KvStore) -> Done<u32> {
        Ok(kv.add_slot())
    }

    fn reset_slot(&self, kv: &mut KvStore, slot: u32) -> Done<()> {
        kv.reset_slot(slot);
        Ok(())
    }

    fn copy_slot(&self, kv: &mut KvStore, [from, to]: [u32; 2]) -> Done<()> {
        kv.copy_slot(from, to);
        Ok(())
    }

    fn copy_block(&self, kv: &mut KvStore, [from, to]: [u32; 2], tokens: usize) -> Done<()> {
        kv.copy(from, to, tokens);
        Ok(())
    }

    fn pick(&self, act: &Vec<f32>, width: usize, rows: &[u32]) -> Done<Vec<f32>> {
        let mut picked = vec![0.0; rows.len() * width];
        embedding::gather_rows(act, rows, width, &mut picked);
        Ok(picked)
    }

    fn spread(&self, dpicked: &Vec<f32>, rows: &[u32], n: usize) -> Done<Vec<f32>> {
        let width = dpicked.len() / rows.len();
        let mut dact = vec![0.0; n * width];
        for (&at, dpicked) in rows.iter().zip(dpicked.chunks_exact(width)) {
            let dact = &mut dact[at as usize * width..][..width];
            dact.iter_mut().zip(dpicked).for_each(|(sum, d)| *sum += d);
        }
        Ok(dact)
    }

    fn read<'a>(&self, act: &'a Vec<f32>) -> Done<Cow<'a, [f32]>> {
        Ok(Cow::Borrowed(act))
    }

    fn unload(&self, act: Vec<f32>) -> Done<Vec<f32>> {
        Ok(act)
    }

    fn act(&self, values: Vec<f32>) -> Done<Vec<f32>> {
        Ok(values)
    }

    fn logits(
        &self,
        hidden: &Vec<f32>,
        rows: &[u32],
        head: &OutputHead,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let width = head.map.dims().1;
        let mut picked = pool.take(rows.len() * width);
        embedding::gather_rows(hidden, rows, width, &mut picked);
        let mut logits = project(&head.map, &picked, self.precision, pool);
        if let Some(cap) = head.softcap {
            cap_logits(&mut logits, cap);
        }
        pool.give([picked]);
        Ok(logits)
    }

    fn choose<C: TokenChoice>(
        &self,
        hidden: &Vec<f32>,
        rows: &[u32],
        head: &OutputHead,
        of: &mut [C],
        pool: &mut Pool,
    ) -> Done<()> {
        let logits = self.logits(hidden, rows, head, pool)?;
        let vocab = head.map.dims().0;
        let ready = of.par_iter_mut().filter_map(|choice| Some((choice.row()?, choice)));
        ready.try_for_each(|(row, choice)| choice.choose(&logits[row * vocab..][..vocab]))?;
        pool.give([logits]);
        Ok(())
    }

    fn draw(
        &self,
        hidden: &Vec<f32>,
        rows: &[u32],
        head: &OutputHead,
        draws: &[TokenDraw],
        pool: &mut Pool,
    ) -> Done<Vec<Result<Sampled, BadLogits>>> {
        let logits = self.logits(hidden, rows, head, pool)?;
        let rows = logits.par_chunks_exact(head.map.dims().0).zip(draws);
        let drawn = rows.map(|(logits, draw)| draw.sample(logits)).collect();
        pool.give([logits]);
        Ok(drawn)
    }

    fn read_drawn(
        &self,
        of: &Vec<Result<Sampled, BadLogits>>,
    ) -> Done<Vec<Result<Sampled, BadLogits>>> {
        Ok(of.clone())
    }
}
