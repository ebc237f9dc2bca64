#!/bin/bash
# Llama 3 8B in FP8
TP_SIZE=2
MICRO_BATCH=1
GLOBAL_BATCH=$((128 * MICRO_BATCH))
DTYPE=${DTYPE:-"fp8"}

MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --swiglu
    --seq-length 8192
    --position-embedding-type rope
)
TRAINING_ARGS=(
    --micro-batch-size $MICRO_BATCH
    --global-batch-size $GLOBAL_BATCH
    --train-iters 1000
    --lr 0.00015   # with a warm-up
    --bf16
)
if [[ "$DTYPE" == "fp8" ]]; then
    TRAINING_ARGS+=("--fp8-format hybrid")
fi
PARALLEL_ARGS="--tensor-model-parallel-size $TP_SIZE --sequence-parallel --use-distributed-optimizer"

torchrun --nproc_per_node 8 pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} \
    $PARALLEL_ARGS
