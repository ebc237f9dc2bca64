#!/usr/bin/env bash
# A tour of what foretrain answers today; `make demo` runs it. Each command is printed, then run.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p out

bold='' plain=''
if [[ -t 1 && -z "${NO_COLOR:-}" ]]; then
  bold=$'\033[1m' plain=$'\033[0m'
fi

say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

show() {
  printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"
  "$@"
}

say "1. What hardware exists? Every figure is dense and per device."
show foretrain devices h100
show foretrain devices a100

say "2. What does it cost to rent? Every price shows its date."
show foretrain offers --gpu h100 --count 8
show foretrain offers --gpu a100 --spot --limit 10

say "3. Rent or buy? A workstation for \$8,000 against \$1.50 an hour; a rented hour does 30 % less work."
show foretrain rent-or-buy --price 8000 --rent 1.50 --relative-performance 0.7

say "4. The same for a server with eight H100s, with electricity. The prices of the server and of a kWh are
   examples: put in your own. The rent is the cloud's, the power the TDP of the eight devices alone."
show foretrain rent-or-buy --price 270000 --offer lambda:gpu_8x_h100_sxm5 \
  --device h100-sxm:8 --usd-per-kwh 0.15 --pue 1.56 --utilisation 0.5 --plot out/rent-or-buy.png

say "5. How do we know? Every fact has a kind and a source."
show foretrain explain h100-sxm

say "6. What is in a training step? No GPU, no weights, no data."
show foretrain trace resnet50 --batch 32

say "7. How long does a step take, does it fit, and what would help?"
show foretrain predict resnet50 --on rtx3090 --batch 192 --precision fp16 --channels-last --optimizer momentum
show foretrain predict llama3-8b --on a100-sxm-80gb --batch 1 --seq-len 2048 --precision bf16

say "8. A GPU known only by its data sheet, in FP32, without an optimizer."
show foretrain predict bert-large --on h100-sxm --batch 8 --seq-len 512 --precision fp32 --attention eager --no-optimizer

say "9. Add GPUs, or not? Many parameters over PCI Express: the network chokes. Few parameters: the GPUs do."
show foretrain predict voice-linear --on lambda-4x1080ti --strategy dp --global-batch 20 --samples 2000
show foretrain predict voice-conv --on lambda-4x1080ti --strategy dp --global-batch 400 --samples 2000

say "10. The fastest way to spread a model over 16 GPUs of two machines, as a table, a plot and a trace for Perfetto."
show foretrain predict gpt2-medium --on a100-sxm-40gb:8x2 --strategy auto --global-batch 256 --precision bf16 \
  --plot out/scaling.png --timeline out/step.json

say "11. What to rent? Every current offer, number of GPUs, strategy and batch size, against a deadline of 24 hours."
show foretrain plan resnet50 --samples 1281167 --epochs 90 --precision fp16 --deadline 24h --html out/plan.html

say "12. The same question for a buyer: one network, several machines, batch sizes from 32 to 8,192."
show foretrain guide resnet50 --precision fp16 --samples 1281167 --show time,verdict --html out/guide.html

say "13. When is training good enough? The first half of a run on ImageNet, and what the rest will bring."
show foretrain converge docs/examples/imagenet.csv --target top5=93 --planned-steps 95

say "14. Many jobs with deadlines on rented nodes: which job runs where, what it costs, and what another job would change."
show foretrain simulate docs/examples/jobs.csv --cluster docs/examples/cluster.yaml --times docs/examples/times.csv \
  --policy auto,edf,fifo --html out/schedule.html
show foretrain schedule docs/examples/jobs.csv --cluster docs/examples/cluster.yaml --times docs/examples/times.csv \
  --explain --what-if docs/examples/job.yaml

say "Next: foretrain --help, README.md, docs/getting-started.md"
