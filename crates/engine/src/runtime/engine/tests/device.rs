//! Passes ahead on a machine that does nothing before the host reads: launches, writes and frees wait in a queue.

use std::any::Any;
use std::collections::VecDeque;

use maverl_kernels::cuda::{
    DeviceElement, Emulated, HostArray, Kernels, LaunchShape, MODEL, Machine, RecordedLaunch,
};
use maverl_kernels::emulate::{self, EmulateError};

use super::ahead::{ended_early, ending};
use super::*;
use crate::net::ops::device::Device;

/// Work that waits.
enum Work {
    Launch(RecordedLaunch),
    Write(u64, Vec<u8>),
    Free(#[expect(dead_code, reason = "is freed when it is dropped")] Box<dyn Any + Send>),
}

/// Work in order, the number of what was done, and what the host did.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Work>,
    done: u64,
    events: Vec<&'static str>,
}

/// An emulated machine whose work is done as late as the host allows.
#[derive(Clone)]
struct Late {
    machine: Emulated,
    line: Arc<Mutex<Line>>,
}

/// Memory that is freed in its turn.
struct LateArray<T: DeviceElement> {
    array: Option<HostArray<T>>,
    line: Arc<Mutex<Line>>,
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Late")
    }
}

impl<T: DeviceElement> Drop for LateArray<T> {
    fn drop(&mut self) {
        if let Some(array) = self.array.take() {
            let mut line = self.line.lock().unwrap();
            line.waiting.push_back(Work::Free(Box::new(array)));
        }
    }
}

impl<T: DeviceElement> LateArray<T> {
    fn whole(&self) -> &HostArray<T> {
        self.array.as_ref().unwrap()
    }
}

impl Late {
    fn new() -> Self {
        Self { machine: Emulated::shared_machine(&MODEL).unwrap(), line: Arc::default() }
    }

    /// Does the work before a point.
    #[allow(unsafe_code)]
    fn run(&self, until: u64) -> Result<(), EmulateError> {
        let mut line = self.line.lock().unwrap();
        while line.done < until {
            let Some(work) = line.waiting.pop_front() else { break };
            line.done += 1;
            match work {
                // SAFETY: as the caller of `launch` promised; memory is freed in its turn.
                Work::Launch(RecordedLaunch { kernel, shape, args }) => unsafe {
                    self.machine.launch_kernel(kernel, shape, &args)?;
                },
                // SAFETY: the array is as long, and is freed in its turn.
                Work::Write(at, bytes) => unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len());
                },
                Work::Free(_) => {}
            }
        }
        Ok(())
    }

    fn array<T: DeviceElement>(&self, array: HostArray<T>) -> LateArray<T> {
        LateArray { array: Some(array), line: Arc::clone(&self.line) }
    }

    fn push(&self, work: Work) {
        self.line.lock().unwrap().waiting.push_back(work);
    }

    fn note(&self, event: &'static str) {
        self.line.lock().unwrap().events.push(event);
    }

    fn events(&self) -> Vec<&'static str> {
        mem::take(&mut self.line.lock().unwrap().events)
    }
}

impl Machine for Late {
    type Error = EmulateError;
    type Array<T: DeviceElement> = LateArray<T>;
    type Event = u64;
    type Graph = Vec<RecordedLaunch>;

    fn upload_array<T: DeviceElement>(&self, host: &[T]) -> Result<LateArray<T>, EmulateError> {
        Ok(self.array(self.machine.upload_array(host)?))
    }

    fn allocate_array<T: DeviceElement>(&self, n: usize) -> Result<LateArray<T>, EmulateError> {
        Ok(self.array(self.machine.allocate_array(n)?))
    }

    fn download_array<T: DeviceElement>(
        &self,
        array: &LateArray<T>,
        n: usize,
    ) -> Result<Vec<T>, EmulateError> {
        self.run(u64::MAX)?;
        self.note("read at once");
        self.machine.download_array(array.whole(), n)
    }

    fn download_at<T: DeviceElement>(
        &self,
        at: &u64,
        array: &LateArray<T>,
        n: usize,
    ) -> Result<Vec<T>, EmulateError> {
        self.run(*at)?;
        self.note("read");
        self.machine.download_array(array.whole(), n)
    }

    #[allow(unsafe_code)]
    fn overwrite_array<T: DeviceElement>(
        &self,
        to: &mut LateArray<T>,
        host: &[T],
    ) -> Result<(), EmulateError> {
        // SAFETY: numbers have no padding.
        let bytes =
            unsafe { std::slice::from_raw_parts(host.as_ptr().cast::<u8>(), size_of_val(host)) };
        self.push(Work::Write(self.machine.array_address(to.whole()), bytes.to_vec()));
        Ok(())
    }

    fn array_address<T: DeviceElement>(&self, array: &LateArray<T>) -> u64 {
        self.machine.array_address(array.whole())
    }

    #[allow(unsafe_code)]
    unsafe fn launch_kernel(
        &self,
        kernel: &'static str,
        shape: LaunchShape,
        args: &[u64],
    ) -> Result<(), EmulateError> {
        if kernel == "choose" {
            self.note("sample");
        }
        self.push(Work::Launch(RecordedLaunch { kernel, shape, args: args.to_vec() }));
        Ok(())
    }

    #[allow(unsafe_code)]
    unsafe fn create_graph(
        &self,
        launches: &[RecordedLaunch],
    ) -> Result<Vec<RecordedLaunch>, EmulateError> {
        Ok(launches.to_vec())
    }

    #[allow(unsafe_code)]
    unsafe fn replay_graph(&self, graph: &Vec<RecordedLaunch>) -> Result<(), EmulateError> {
        self.note("replay");
        graph.iter().for_each(|launch| self.push(Work::Launch(launch.clone())));
        Ok(())
    }

    fn record_event(&self) -> Result<u64, EmulateError> {
        let line = self.line.lock().unwrap();
        Ok(line.done + line.waiting.len() as u64)
    }

    fn is_reached(&self, event: &u64) -> Result<bool, EmulateError> {
        self.run(*event)?;
        Ok(true)
    }

    fn stream_handle(&self) -> Result<u64, EmulateError> {
        self.machine.stream_handle()
    }

    fn elapsed_millis(&self, _: &u64, _: &u64) -> Result<f32, EmulateError> {
        Ok(0.0)
    }
}

/// A model on a late machine.
struct OnDevice {
    ops: Device<Late>,
    machine: Late,
    tokenizer: Arc<Tokenizer>,
    model: Model<Device<Late>>,
}

impl OnDevice {
    /// Loads a small model with random weights; none without a C++ compiler.
    fn new(graphs: bool) -> Option<Self> {
        if let Err(error) = emulate::check_compiler() {
            eprintln!("skipped: {error}");
            return None;
        }
        let machine = Late::new();
        let ops = Device::new(Kernels::new(machine.clone())).with_graphs(graphs);
        let fixture = Fixture::of(64, 2, 1);
        let model = ops.load(fixture.versions[0].clone(), false).unwrap();
        Some(Self { ops, machine, tokenizer: fixture.tokenizer, model })
    }

    fn engine(&self, blocks: usize, ahead: bool) -> Engine<Device<Late>> {
        let (tokenizer, options) = (Arc::clone(&self.tokenizer), RuntimeOptions::default());
        let engine = Engine::new("w", tokenizer, &self.ops, &self.model.config, &options, 1);
        assert!(engine.ahead, "devices run ahead");
        let bytes = blocks * self.ops.block_bytes(&self.model.config);
        let cache = Cache::new(&self.ops, &self.model.config, bytes, true, 1, 64);
        Engine { ahead, cache, ..engine }
    }

    /// Runs requests, each of which joins at a step, and cancels one. Returns the completions, and what they cost.
    fn run(&self, blocks: usize, ahead: bool) -> (Vec<Option<Completion>>, EngineStats) {
        let mut engine = self.engine(blocks, ahead);
        let mut answers: Vec<Option<Answer>> = Vec::new();
        for now in 0_usize.. {
            while let Some(request) = joining(answers.len() as u64, now) {
                answers.push(Some(send(&mut engine, &self.model, request)));
            }
            if now == 3 {
                answers[CANCELLED] = None;
            }
            if now > LAST && engine.is_idle() {
                break;
            }
            engine.step(std::iter::once(&self.model));
        }
        assert!(engine.unread[0].is_none());
        let done = answers.into_iter().map(|answer| Some(answer?.try_recv().unwrap().unwrap()));
        (done.collect(), work(&engine))
    }
}

const CANCELLED: usize = 2;
/// Step at which the last requests join.
const LAST: usize = 16;

/// Returns request `i` if it has joined by a step: some end early, and the tokens of some are sampled by the host.
fn joining(i: u64, now: usize) -> Option<Request> {
    let sampled = |i: u64, f: fn(&mut Sampling)| {
        let request = ending(i);
        let mut sampling = (*request.sampling).clone();
        f(&mut sampling);
        Request { sampling: Arc::new(sampling), ..request }
    };
    let (step, request) = match i {
        0..4 => (0, ending(i)),
        4 => (0, sampled(i, |sampling| sampling.max_tokens = 1)),
        5..8 => (5, ending(i)),
        8 => (9, sampled(i, |sampling| sampling.top_p = 0.8)),
        9 => (9, sampled(i, |sampling| sampling.repetition_penalty = 1.3)),
        10 => (11, sampled(i, |sampling| sampling.temperature = 0.0)),
        11 => (12, watched(1).0),
        12..15 => (LAST, ending(i)),
        _ => return None,
    };
    (now >= step).then_some(request)
}

#[test]
fn tokens_and_log_probs_are_the_same_whether_a_device_is_ahead_or_not_with_and_without_graphs() {
    let mut all = Vec::new();
    for graphs in [true, false] {
        let Some(device) = OnDevice::new(graphs) else { return };
        for (blocks, ahead) in [(1000, false), (1000, true), (9, true)] {
            let (mut done, work) = device.run(blocks, ahead);
            println!("graphs {graphs}, ahead {ahead}, {blocks} blocks: {work:?}");
            assert_eq!(work.discarded > 0, ahead);
            done[CANCELLED] = None;
            all.push(done);
        }
    }
    for done in &all[1..] {
        for (i, (done, expected)) in done.iter().zip(&all[0]).enumerate() {
            assert_eq!(done, expected, "request {i}");
        }
    }
}

#[test]
fn the_next_pass_is_launched_before_the_tokens_of_the_last_are_read() {
    for graphs in [true, false] {
        let Some(device) = OnDevice::new(graphs) else { return };
        let run = |ahead: bool| {
            let mut engine = device.engine(1000, ahead);
            let answers: Vec<Answer> =
                (0..3).map(|i| send(&mut engine, &device.model, ending(i))).collect();
            device.machine.events();
            while !engine.is_idle() {
                engine.step(std::iter::once(&device.model));
            }
            let of = |mut answer: Answer| answer.try_recv().unwrap().unwrap();
            (
                answers.into_iter().map(of).collect::<Vec<_>>(),
                work(&engine),
                device.machine.events(),
            )
        };
        let (expected, at_once, events) = run(false);
        assert!(events.iter().all(|event| *event != "read"), "{events:?}");
        let (done, ahead, events) = run(true);
        assert_eq!(done, expected);
        let longest = done.iter().map(|done| done.ids.len()).max().unwrap();
        let early = ended_early(&done, ending);
        println!("{longest} tokens, {early} discarded: {}", events.join(", "));
        assert_eq!((at_once.discarded, ahead.discarded), (0, early));
        assert_eq!(at_once.decoded, ahead.decoded);
        // The first pass has the prompts, and is not a graph.
        let next: &[&str] =
            if graphs { &["replay", "sample", "read"] } else { &["sample", "read"] };
        let mut wanted = vec!["sample"];
        (1..longest).for_each(|_| wanted.extend(next));
        let most = |(i, done): (u64, &Completion)| done.ids.len() == ending(i).sampling.max_tokens;
        let mut last = (0..).zip(&done).filter(|(_, done)| done.ids.len() == longest);
        // One more pass, whose tokens are discarded, where a last completion has ended early.
        wanted.extend(if last.all(most) { &["read"] } else { next });
        assert_eq!(events, wanted);
    }
}
