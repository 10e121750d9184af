"""Names of tensors in safetensors by part of a model, and in GGUF files.

`{}` is the number of a layer, an expert or a head. Alternative spellings of a part are in one
string, separated by spaces.
"""

from __future__ import annotations

LLAMA = {
    "layer": "model.layers.{}.",
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "attention_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "qkv": "self_attn.qkv_proj",
    "output": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "gate_up": "mlp.gate_up_proj",
    "down": "mlp.down_proj",
    "router": "mlp.gate",
    "expert_gate": "mlp.experts.{}.gate_proj mlp.switch_mlp.gate_proj",
    "expert_up": "mlp.experts.{}.up_proj mlp.switch_mlp.up_proj",
    "expert_down": "mlp.experts.{}.down_proj mlp.switch_mlp.down_proj",
    "experts": "mlp.experts",
}
MIXTRAL = {
    **LLAMA,
    "router": "block_sparse_moe.gate mlp.gate",
    "expert_gate": "block_sparse_moe.experts.{}.w1 block_sparse_moe.switch_mlp.gate_proj",
    "expert_up": "block_sparse_moe.experts.{}.w3 block_sparse_moe.switch_mlp.up_proj",
    "expert_down": "block_sparse_moe.experts.{}.w2 block_sparse_moe.switch_mlp.down_proj",
}
PHI = {
    **LLAMA,
    "norm": "model.final_layernorm",
    "output": "self_attn.dense",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
    "q_norm": "self_attn.q_layernorm",
    "k_norm": "self_attn.k_layernorm",
}
STABLELM = {
    **LLAMA,
    "q_norm": "self_attn.q_layernorm.norms.{}",
    "k_norm": "self_attn.k_layernorm.norms.{}",
}
BIGCODE = {
    "layer": "transformer.h.{}.",
    "embedding": "transformer.wte",
    "positions": "transformer.wpe",
    "norm": "transformer.ln_f",
    "head": "lm_head",
    "attention_norm": "ln_1",
    "qkv": "attn.c_attn",
    "output": "attn.c_proj",
    "mlp_norm": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
FALCON = {
    "layer": "transformer.h.{}.",
    "embedding": "transformer.word_embeddings",
    "norm": "transformer.ln_f",
    "head": "lm_head",
    "attention_norm": "input_layernorm ln_attn",
    "mlp_norm": "post_attention_layernorm ln_mlp",
    "qkv": "self_attention.query_key_value",
    "output": "self_attention.dense",
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
}
CHATGLM = {
    "layer": "transformer.encoder.layers.{}.",
    "embedding": "transformer.embedding.word_embeddings",
    "norm": "transformer.encoder.final_layernorm",
    "head": "transformer.output_layer",
    "attention_norm": "input_layernorm",
    "qkv": "self_attention.query_key_value",
    "output": "self_attention.dense",
    "mlp_norm": "post_attention_layernorm",
    "gate_up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
}
GEMMA2 = {
    **LLAMA,
    "attention_after": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_after": "post_feedforward_layernorm",
}
GLM4 = {
    **LLAMA,
    "attention_after": "post_self_attn_layernorm",
    "mlp_after": "post_mlp_layernorm",
}
GGUF_NAMES = {
    "layer": "blk.{}.",
    "embedding": "token_embd",
    "positions": "position_embd",
    "norm": "output_norm",
    "head": "output",
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "qkv": "attn_qkv",
    "output": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "mlp_norm": "ffn_norm",
    "attention_after": "post_attention_norm",
    "mlp_after": "post_ffw_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "gate_up": "ffn_up",
    "down": "ffn_down",
    "router": "ffn_gate_inp",
    "expert_gate": "ffn_gate_exps",
    "expert_up": "ffn_up_exps",
    "expert_down": "ffn_down_exps",
}
"""The names in most GGUF files."""
