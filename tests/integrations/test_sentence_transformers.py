"""LpPooling in the real Sentence Transformers: a small BERT with random weights, no download."""

import math

import pytest
import torch

pytest.importorskip("sentence_transformers", reason="needs the extra sentence-transformers")
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from lpunits import lp_pool, orders, param_groups
from lpunits.integrations.sentence_transformers import LpPooling

WORDS = ["[PAD]", "[UNK]", "query", ":", "the", "cat", "sat", "on", "a", "mat"]
SENTENCES = ["the cat sat on a mat", "a cat", "the mat", "query"]
SIZE = 16


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder with a tokenizer of a few words and an untrained BERT of one layer."""
    folder = str(tmp_path_factory.mktemp("bert"))
    words = models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=SIZE,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=SIZE,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def model(bert, *pooling):
    return SentenceTransformer(modules=[Transformer(bert), *pooling], device="cpu")


def test_at_order_1_it_is_mean_pooling(bert):
    ours = model(bert, LpPooling(SIZE, order=1.0)).encode(SENTENCES, convert_to_tensor=True)
    theirs = model(bert, Pooling(SIZE)).encode(SENTENCES, convert_to_tensor=True)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("signed", [True, False])
def test_padding_counts_for_nothing(bert, signed):
    net = model(bert, LpPooling(SIZE, order=(1.0, 6.0), signed=signed))
    assert net.get_embedding_dimension() == SIZE
    together = net.encode(SENTENCES, batch_size=4)
    alone = net.encode(SENTENCES, batch_size=1)
    assert together == pytest.approx(alone, abs=1e-5)
    assert (together < 0).any() == signed


@pytest.mark.parametrize(
    "options",
    [
        {"order": (1.5, 5.0)},
        {"order": 2.5, "shared": True, "learn_order": False, "include_prompt": False},
        {"order": [2.0] * 15 + [math.inf], "signed": False},
        {"order": math.inf},
        {"order": -1.0, "order_range": (-4.0, 8.0), "signed": False},
    ],
)
def test_a_saved_model_is_the_same_when_it_is_loaded(bert, tmp_path, options):
    net = model(bert, LpPooling(SIZE, **options))
    net.save(str(tmp_path))
    again = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)
    assert (again.encode(SENTENCES) == net.encode(SENTENCES)).all()
    assert again[1].get_config_dict() == net[1].get_config_dict()
    assert torch.equal(again[1].pool.rho, net[1].pool.rho)
    assert "Infinity" not in (tmp_path / "1_LpPooling" / "config.json").read_text()


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prompt_can_be_left_out(side):
    z = torch.randn(2, 6, SIZE)
    real = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    mask = real if side == "right" else real.flip(1)
    pool = LpPooling(SIZE, include_prompt=False, signed=False)
    given = {"token_embeddings": z, "attention_mask": mask, "prompt_length": torch.tensor([2])}
    found = pool(given)["sentence_embedding"]
    rows = z[1, 2:4] if side == "right" else z[1, 4:]
    torch.testing.assert_close(found[0], lp_pool(z[0, 2:], pool.pool.order, dim=0))
    torch.testing.assert_close(found[1], lp_pool(rows, pool.pool.order, dim=0))


@pytest.mark.parametrize("prompt", [0, 1])
@pytest.mark.parametrize("signed", [True, False])
def test_sentences_without_padding_one_behind_the_other(prompt, signed):
    z, lengths = torch.randn(3, 5, SIZE), torch.tensor([5, 2, 3])
    mask = torch.arange(5) < lengths[:, None]
    pool = LpPooling(SIZE, include_prompt=False, signed=signed)
    offsets = torch.tensor([0, 5, 7, 10], dtype=torch.int32)
    flat = {"token_embeddings": z[mask][None], "cu_seq_lens_q": offsets, "prompt_length": prompt}
    padded = {"token_embeddings": z, "attention_mask": mask.long(), "prompt_length": prompt}
    torch.testing.assert_close(pool(flat)["sentence_embedding"], pool(padded)["sentence_embedding"])


def test_its_orders_learn(bert):
    net = model(bert, LpPooling(SIZE, order=1.0, order_range=(0.5, 8.0)))
    optimizer = torch.optim.Adam(param_groups(net, lr=0.01))
    before = orders(net)
    net(net.preprocess(SENTENCES))["sentence_embedding"].square().sum().backward()
    optimizer.step()
    assert list(before) == ["1.pool"]
    assert (orders(net)["1.pool"] != before["1.pool"]).all()
