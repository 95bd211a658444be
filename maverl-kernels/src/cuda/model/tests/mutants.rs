//! Seeded mistakes in the kernels, each of which some order of threads or time of copies must show.

use super::super::products::{NT_16, NT_64, NT_128};
use super::*;
use crate::attention::{Heads, Packing, Segment};
use crate::cuda::{Destination, KvShape, LinearOutput, MapOutput, Module};
use crate::sample::TokenDraw;

/// A mistake: a part of the source after a place that is there once, and what stands in its stead. A statement ends
/// in a semicolon; anything else is an expression.
struct Mutant {
    after: &'static str,
    from: &'static str,
    to: &'static str,
}

const fn mutant(after: &'static str, from: &'static str, to: &'static str) -> Mutant {
    Mutant { after, from, to }
}

/// Builds a module with all mutants in it, of which one at a time is chosen when it runs.
fn with_mutants(name: &str, mutants: &[Mutant]) -> Option<Kernels<Emulated>> {
    let module: Module = *MODEL.iter().find(|module| module.name == name).unwrap();
    let mut text = module.source_text();
    for (i, Mutant { after, from, to }) in mutants.iter().enumerate() {
        assert_eq!(text.matches(after).count(), 1, "{after:?} is not there once");
        let start = text.find(after).unwrap();
        let at = start + text[start..].find(from).unwrap_or_else(|| panic!("no {from:?}"));
        let chosen = format!("coc::mutant() == {}", i + 1);
        let both = if from.ends_with(';') {
            format!("if ({chosen}) {{ {to} }} else {{ {from} }}")
        } else {
            format!("({chosen} ? {to} : {from})")
        };
        text.replace_range(at..at + from.len(), &both);
    }
    match KernelLibrary::build(&text, module.kernels) {
        Ok(library) => Some(Kernels::new(Emulated::from_libraries(vec![(module, library)]))),
        Err(error @ EmulateError::NoCompiler(_)) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Asserts that results are the same in every setting without a mistake, and others, or an error, in some setting with
/// each.
#[track_caller]
fn all_are_caught<R: PartialEq>(
    name: &str,
    mutants: &[Mutant],
    results: impl Fn(&Kernels<Emulated>) -> Result<R, EmulateError>,
) {
    let Some(kernels) = with_mutants(name, mutants) else { return };
    let run = |settings: ThreadSchedule| {
        kernels.machine().apply_settings(settings);
        results(&kernels)
    };
    let want = run(ThreadSchedule::default()).unwrap();
    for settings in ThreadSchedule::every_schedule() {
        assert!(run(settings).unwrap() == want, "{name} without a mistake, {settings:?}");
    }
    let escapes = |number: usize| {
        let mut all = ThreadSchedule::every_schedule()
            .map(|settings| ThreadSchedule { mutant: number as u32, ..settings });
        all.all(|settings| run(settings).is_ok_and(|got| got == want))
    };
    // Each third mistake in the first tier; all in the second.
    let stride = if std::env::var_os("MAVERL_FULL").is_some() { 1 } else { 3 };
    let numbers = (1..=mutants.len()).step_by(stride);
    let escaped: Vec<_> = numbers.filter(|&number| escapes(number)).collect();
    let names = escaped.iter().map(|&number| (mutants[number - 1].after, mutants[number - 1].to));
    assert!(escaped.is_empty(), "{name}: not caught: {:#?}", names.collect::<Vec<_>>());
}

#[test]
fn mistakes_in_products_are_caught() {
    const LOOP: &str = "for (int step = begin; step < end; step++) {";
    let mutants = [
        mutant(LOOP, "cp_async_wait<STAGES - 2>();", "cp_async_wait<STAGES - 1>();"),
        mutant(LOOP, "__syncthreads();", ""),
        mutant(
            LOOP,
            "if (step + STAGES - 1 < end) load(step + STAGES - 1);",
            "if (step + STAGES - 1 < end) load(step + STAGES);",
        ),
        mutant(
            "INLINE void load_tile",
            "copy8(to + swizzled<CHUNKS>(r, c), at, valid, aligned);",
            "copy8(to + swizzled<CHUNKS>(r, c ^ 1), at, valid, aligned);",
        ),
        mutant("INLINE void load_tile", "cols - (col + c * 8)", "cols + 1 - (col + c * 8)"),
        mutant(
            "at_a[i] = left + swizzled<BK / 8>",
            "kk * 2 + (lane >> 4)",
            "kk * 2 + (lane >> 3 & 1)",
        ),
        mutant(
            "at_b[j] = right + swizzled<BK / 8>",
            "col + (lane >> 4) * 8",
            "col + (lane >> 3 & 1) * 8",
        ),
        mutant(
            "at_a[i] = left + swizzled<BM / 8>",
            "row / 8 + (lane >> 3 & 1)",
            "row / 8 + (lane >> 4)",
        ),
        mutant("at_b[j] = right + swizzled<BN / 8>", "col / 8 + (lane >> 4)", "col / 8"),
        mutant(
            "int next =",
            "WALK ? first_step<BK>(t, 1) : 0",
            "WALK ? first_step<BK>(t, 1) + 1 : 0",
        ),
        mutant("piece++;", "acc[i][j][e] = 0.0f", "acc[i][j][e]"),
        mutant(
            "quads[j / 2][j % 2 * 2],",
            "quads[j / 2][j % 2 * 2 + 1]",
            "quads[j / 2][j % 2 * 2]",
        ),
        mutant("if (row < t.m) write_pair", "row + 8 < t.m", "row + 7 < t.m"),
        mutant(
            "KERNEL(256) add_pieces",
            "parts[piece * size + at]",
            "parts[(pieces - 1 - piece) * size + at]",
        ),
        mutant("int height =", "min(8, tiles_m - band)", "8"),
        mutant("const int tiles = blocks(a)", "block / tiles", "0"),
        mutant("INLINE void products", "parts += results(a)", "parts += a.n"),
        mutant("KERNEL(256) add_map_pieces", "results(a) * a.pieces", "results(a)"),
    ];
    all_are_caught("products.cu", &mutants, |kernels| {
        let mut results = Vec::new();
        for shape @ [m, n, k] in [[25, 66, 265], [5, 72, 1600], [70, 65, 71]] {
            let (x, w) = (random_bf16(1, m * k), random_bf16(2, n * k));
            let (x, w) = (kernels.array_of(&x)?, kernels.array_of(&w)?);
            let (x, w) = (x.as_slice(), w.as_slice());
            for form in 0..5 {
                let mut y = kernels.new_array(m * n)?;
                let to = Destination::F32(y.slice_mut());
                let out = LinearOutput { scale: 1.0, bias: None, to };
                match form {
                    0 => kernels.linear_by(NT_16, x, w, shape, None, out)?,
                    1 => kernels.linear_by(NT_64, x, w, shape, None, out)?,
                    2 => kernels.linear_by(NT_128, x, w, shape, None, out)?,
                    3 => kernels.linear_back(x, w, shape, None, out)?,
                    _ => kernels.linear_back_weight(x, w, shape, out)?,
                }
                results.push(bits(&kernels.read_array(&y)?));
            }
        }
        // Maps of one input, the first two of several pieces.
        let (m, k, mut maps) = (5, 1600, Vec::new());
        let x = kernels.array_of(&random_bf16(1, m * k))?;
        for n in [72, 66, 8] {
            maps.push((
                kernels.array_of(&random_bf16(n as u64, n * k))?,
                kernels.new_array(m * n)?,
            ));
        }
        let all: Vec<MapOutput<'_>> = maps
            .iter_mut()
            .map(|(w, y)| MapOutput { w: w.as_slice(), bias: None, to: y.slice_mut() })
            .collect();
        kernels.linear_maps(x.as_slice(), [m, k], &all)?;
        drop(all);
        for (_, y) in &maps {
            results.push(kernels.read_array(y)?.into_iter().map(u32::from).collect());
        }
        Ok(results)
    });
}

#[test]
fn mistakes_in_attention_are_caught() {
    const PACKED: &str = "count = last / TILE + 1;";
    const ONE: &str = "for (int i = from; i < to; i++) {";
    const QUERIES: &str = "clear<D>(acc);\n  load(0);";
    const KEYS: &str = "if (count > 0) load(0);";
    let mutants = [
        mutant(PACKED, "cp_async_wait<1>();", "cp_async_wait<2>();"),
        mutant(PACKED, "__syncthreads();", ""),
        mutant("totals.absorb(span);\n    __syncthreads();", "__syncthreads();", ""),
        mutant(ONE, "cp_async_wait<1>();", "cp_async_wait<2>();"),
        mutant(ONE, "load(i + 1, (i + 1) & 1, false);", "load(i + 1, i & 1, false);"),
        mutant(
            "int key = first + j * 8",
            "key <= (e < 2 ? limit0 : limit1)",
            "key < (e < 2 ? limit0 : limit1)",
        ),
        mutant("limit1 =", "(lane >> 2) + 8", "(lane >> 2)"),
        mutant("if (i * TILE <= position + 15", "i * TILE <= position + 15", "i * TILE < position"),
        mutant("INLINE size_t path_token", "position < t.past", "position <= t.past"),
        mutant("at[j] = keys + swizzled", "kk * 2 + (lane >> 3 & 1)", "kk * 2"),
        mutant(
            "top[h] = fmaxf(top[h], __shfl_xor_sync(ALL, top[h], 1));",
            "__shfl_xor_sync(ALL, top[h], 2)",
            "__shfl_xor_sync(ALL, top[h], 1)",
        ),
        mutant("Adds the sums of the four lanes", "__shfl_xor_sync(ALL, l[h], 2)", "0.0f"),
        mutant("INLINE const bf16* cached", "position % 16", "position % 15"),
        mutant(QUERIES, "cp_async_wait<1>();", "cp_async_wait<2>();"),
        mutant(QUERIES, "__syncthreads();", ""),
        mutant(KEYS, "cp_async_wait<1>();", "cp_async_wait<2>();"),
        mutant(KEYS, "__syncthreads();", ""),
        mutant("float p = key <= limit[h]", "key <= limit[h]", "key < limit[h]"),
        mutant("bool seen =", "key <= step.first + query", "key < step.first + query"),
    ];
    all_are_caught("attention.cu", &mutants, attention_results);
}

/// Results of attention in all its forms.
fn attention_results(kernels: &Kernels<Emulated>) -> Result<Vec<Vec<u16>>, EmulateError> {
    let (heads, n, offsets) = (Heads::new(2, 1, 32), 215, [0, 70, 75, 215]);
    let packing = Packing { offsets: &offsets, parents: &[None, Some(0), Some(0)] };
    let q: Vec<f32> = random(1, n * 64).into_iter().map(|x| 6.0 * x).collect();
    let (q, dout) = (kernels.array_of(&to_bf16(&q))?, kernels.array_of(&random_bf16(4, n * 64))?);
    let [k, v] = [2, 3].map(|seed| kernels.array_of(&random_bf16(seed, n * 32)).unwrap());
    let qkv = [q.as_slice(), k.as_slice(), v.as_slice()];
    let (mut out, mut lse) = (kernels.new_array(n * 64)?, kernels.new_array(n * 2)?);
    let layout = kernels.attention_layout(packing)?;
    kernels.attend_packed(qkv, &layout, heads, out.slice_mut(), lse.slice_mut())?;
    let layout = kernels.backward_layout(packing)?;
    let (mut dq, mut dk, mut dv) =
        (kernels.new_array(n * 64)?, kernels.new_array(n * 32)?, kernels.new_array(n * 32)?);
    let (of, into) =
        ([out.as_slice(), dout.as_slice()], [dq.slice_mut(), dk.slice_mut(), dv.slice_mut()]);
    kernels.attend_back(qkv, of, lse.as_slice(), &layout, heads, into)?;
    let mut results = Vec::new();
    for array in [&out, &dq, &dk, &dv] {
        results.push(kernels.read_array(array)?);
    }
    let shape = KvShape { layers: 1, heads: 1, dim: 32 };
    let blocks: Vec<u32> = (0..14).map(|i| (i * 5 + 2) % 14).collect();
    let mut cache = kernels.new_array::<u16>(14 * shape.block_len())?;
    for (start, end) in [(0, 199), (199, 200)] {
        let segment = Segment { new_tokens: end - start, len: end, blocks: &blocks, state: 0 };
        let tables = kernels.block_tables(&[segment])?;
        let of_kv = start * 32..end * 32;
        let kv = [k.as_slice().sub_slice(of_kv.clone()), v.as_slice().sub_slice(of_kv)];
        kernels.append_tokens(kv, &tables, shape, 0, cache.slice_mut())?;
        let q = q.as_slice().sub_slice(start * 64..end * 64);
        let mut out = kernels.new_array(q.len())?;
        let to = out.slice_mut();
        kernels.attend_cached(q, cache.as_slice(), &tables, shape, 0, heads, to)?;
        results.push(kernels.read_array(&out)?);
    }
    Ok(results)
}

#[test]
fn mistakes_in_norms_are_caught() {
    let mutants = [
        mutant("__shared__ float sums[WARPS];", "__syncthreads();", ""),
        mutant("if (!partials) return;\n  __syncthreads();\n  for (int c", "__syncthreads();", ""),
        mutant("store8(y + c, v,", "min(d - c, 8)", "8"),
        mutant(
            "load8(float (&v)[8], const bf16* from",
            "i < valid ? from_bf16(from[i]) : 0.0f",
            "from_bf16(from[i])",
        ),
    ];
    all_are_caught("elementwise.cu", &mutants, |kernels| {
        let mut results = Vec::new();
        for (n, d) in [(70, 65), (2, 2060)] {
            let x = kernels.array_of(&random(1, n * d))?;
            let (w, dy) =
                (kernels.array_of(&random_bf16(2, d))?, kernels.array_of(&random_bf16(3, n * d))?);
            let (mut y, mut dx) = (kernels.new_array(n * d)?, kernels.new_array(n * d)?);
            let mut dw = kernels.array_of(&vec![0.0; d])?;
            let (x, w, dy) = (x.as_slice(), w.as_slice(), dy.as_slice());
            kernels.rms_norm(x, w, 1e-6, y.slice_mut())?;
            let (to, sums) = (dx.slice_mut(), Some(dw.slice_mut()));
            kernels.rms_norm_back(x, w, 1e-6, dy, false, to, None, sums)?;
            let sums = bits(&kernels.read_array(&dw)?);
            results.push((kernels.read_array(&y)?, bits(&kernels.read_array(&dx)?), sums));
        }
        Ok(results)
    });
}

#[test]
fn mistakes_in_sampling_are_caught() {
    let mutants = [
        mutant("int c = first + j * 32 + lane;", "c < vocab", "true"),
        mutant("drawn.id = (u32)c, start", "start > aim", "start > 0.5 * aim"),
        mutant("if (from == lane) r.before", "from == lane", "true"),
        mutant("int owner =", "__ffs((int)passing) - 1", "31 - __clz((int)passing)"),
        mutant("u64 z = finalize", "seed + golden", "seed"),
        mutant("KERNEL(256) sampled_ids", "i >= n", "i > n"),
        mutant("u32 id = drawn", "drawn[from[i]]", "drawn[i]"),
    ];
    all_are_caught("softmax.cu", &mutants, |kernels| {
        let z: Vec<f32> = random(1, 20 * 5000).into_iter().map(|z| 3.0 * z).collect();
        let draws: Vec<TokenDraw> =
            (0..20).map(|seed| TokenDraw { temperature: 1.0, seed, counter: 3 }).collect();
        let on = kernels.array_of(&z)?;
        let wide = kernels.choose_tokens(on.as_slice(), &draws)?;
        let narrow = kernels.choose_tokens(on.as_slice().sub_slice(0..20 * 70), &draws)?;
        let tokens = kernels.launch_sampling(on.as_slice(), &draws)?;
        let from: Vec<u32> = (0..20).map(|i| (i * 7 + 3) % 20).collect();
        let (from, ids) = (kernels.array_of(&from)?, kernels.array_of(&[9000_u32; 20])?);
        kernels.replace_ids(&tokens, [from.as_slice().bits(), ids.as_slice().bits()], 19, 5000)?;
        Ok(format!("{wide:?} {narrow:?} {:?}", kernels.read_array(&ids)?))
    });
}
