"""Two programs that are not ESMFold: GPT-2 trained for some steps, a small Llama that writes with a growing cache."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


def train(run):
    """Two steps of AdamW on GPT-2 small, float32: seq_len tokens, batch texts."""
    model = run.keep = GPT2LMHeadModel(GPT2Config()).to(run.device)
    run.weights = sum(p.numel() * p.element_size() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters())
    run.phase("load")
    tokens = torch.randint(0, 50257, (run.batch, run.seq_len), device=run.device)
    run.phase("forward")
    for _ in range(2):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def write(run):
    """A prompt of seq_len tokens through 16 layers in bfloat16, then 32 more tokens, each with all keys and values before it."""
    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16, vocab_size=32000,
                         max_position_embeddings=16384)
    model = run.keep = LlamaForCausalLM(config).to(torch.bfloat16).to(run.device).eval()
    run.weights = sum(p.numel() * p.element_size() for p in model.parameters())
    run.phase("load")
    tokens = torch.randint(0, 32000, (run.batch, run.seq_len), device=run.device)
    run.phase("forward")
    with torch.no_grad():
        out = model(input_ids=tokens, use_cache=True, logits_to_keep=1)
        for _ in range(32):
            token = out.logits[:, -1:].argmax(-1)
            out = model(input_ids=token, past_key_values=out.past_key_values, use_cache=True)
    return out.logits
