"""Makes the encoders of tests/fixtures/encoders: random weights, with embeddings that transformers and sentence-transformers compute.

    pip install torch transformers sentence-transformers faiss-cpu
    python make_encoders.py ../fixtures/encoders

Nothing is downloaded.
"""

import json
import sys
from pathlib import Path

import faiss
import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

WORDS = "who wrote the a an city by sea with of in is was born novel harbour mag ##dor ##s ##ed ada sev ##nar , . ? : query passage é 北 京"
TEXTS = [
    "query: who wrote Magdor?",
    "passage: Magdor is a novel by Ada Sevnar.",
    "",
    "A city by the sea, with harbours; \u5317\u4eac, \u00c9!",
    " ".join(["the sea is a city."] * 9),
]
OUT = Path(sys.argv[1])


def tokenizer(frame):
    """A WordPiece tokenizer in lower case, as BERT's; `frame` names padding, unknown, first and last token."""
    pad, unknown, first, last = frame
    vocabulary = {token: i for i, token in enumerate([pad, unknown, first, last, *WORDS.split(), *"abcdefghijklmnopqrstuvwxyz;!"])}
    for letter in "abcdefghijklmnopqrstuvwxyz":
        vocabulary.setdefault("##" + letter, len(vocabulary))
    made = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(first, vocabulary[first]), (last, vocabulary[last])]
    )
    names = {"pad_token": pad, "unk_token": unknown, "cls_token": first, "sep_token": last}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=32, **names)


def write_steps(folder, pooling, normalizes):
    """Writes the files of sentence-transformers."""
    kind = "sentence_transformers.models."
    steps = [("", "Transformer"), ("1_Pooling", "Pooling")] + ([("2_Normalize", "Normalize")] if normalizes else [])
    modules = [{"idx": i, "name": str(i), "path": path, "type": kind + name} for i, (path, name) in enumerate(steps)]
    (folder / "modules.json").write_text(json.dumps(modules, indent=1) + "\n")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 32, "do_lower_case": false}\n')
    (folder / "1_Pooling").mkdir(exist_ok=True)
    flags = {f"pooling_mode_{name}": name == pooling for name in ["cls_token", "mean_tokens", "max_tokens"]}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 12, **flags}, indent=1) + "\n")
    if normalizes:
        (folder / "2_Normalize").mkdir(exist_ok=True)


def make(name, model_class, config, frame, pooling, normalizes, dtype):
    """Writes a model and its references: ids, hidden states of each text, and embeddings."""
    torch.manual_seed(len(name))
    folder = OUT / name
    words = tokenizer(frame)
    config.vocab_size = len(words) + 3
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Gains and biases that are not 1 and 0, and scores that are not all alike.
            parameter.add_(torch.randn_like(parameter) * 0.2)
            parameter.copy_(parameter.to(dtype).float())
    model.to(dtype).save_pretrained(folder)
    words.save_pretrained(folder)
    write_steps(folder, pooling, normalizes)
    model = model_class.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    for text in TEXTS:
        ids = words(text, truncation=True, max_length=32, return_tensors="pt")
        ids.pop("token_type_ids", None)
        with torch.no_grad():
            hidden = model(**ids).last_hidden_state[0]
        rows.append({"text": text, "ids": ids["input_ids"][0].tolist(), "hidden": hidden.flatten().tolist()})
    encoder = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    embeddings = encoder.encode(TEXTS, convert_to_numpy=True, batch_size=3)
    for row, embedding in zip(rows, embeddings):
        row["embedding"] = embedding.tolist()
        row["hidden"] = [float(f"{x:.8g}") for x in row["hidden"]]
    (folder / "reference.json").write_text(json.dumps(rows, ensure_ascii=False) + "\n")


def make_index(name, index_class):
    """Writes a flat index of random vectors, with queries and what faiss finds for them."""
    draw = np.random.default_rng(7)
    vectors, queries = (draw.standard_normal((n, 12), dtype=np.float32) for n in (40, 6))
    vectors[31] = vectors[5]
    queries[0] = vectors[5]
    index = index_class(12)
    index.add(vectors)
    faiss.write_index(index, str(OUT / f"{name}.index"))
    scores, rows = index.search(queries, 10)
    found = {"queries": queries.tolist(), "scores": scores.tolist(), "rows": rows.tolist()}
    (OUT / f"{name}.json").write_text(json.dumps(found) + "\n")


SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
BRACKETS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
make("bert-mean", BertModel, BertConfig(**SIZES, max_position_embeddings=40), BRACKETS, "mean_tokens", True, torch.float32)
small = DistilBertConfig(dim=12, n_layers=2, n_heads=2, hidden_dim=20, max_position_embeddings=32)
make("distilbert-cls", DistilBertModel, small, BRACKETS, "cls_token", False, torch.bfloat16)
after = XLMRobertaConfig(**SIZES, max_position_embeddings=36, type_vocab_size=1, pad_token_id=0, layer_norm_eps=1e-5)
make("xlm-roberta-cls", XLMRobertaModel, after, ("<pad>", "<unk>", "<s>", "</s>"), "cls_token", True, torch.float16)
make_index("flat-ip", faiss.IndexFlatIP)
make_index("flat-l2", faiss.IndexFlatL2)
