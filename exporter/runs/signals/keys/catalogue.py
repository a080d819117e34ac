"""Every signal that some trainer logs: its name, and what it is in base units."""

from __future__ import annotations

from typing import NamedTuple


class Signal(NamedTuple):
    """A canonical signal, the same for every trainer."""

    name: str
    help: str


class PartSignal(NamedTuple):
    """A signal that a run logs once for each part; ``label`` tells the parts apart."""

    name: str
    label: str
    help: str


SIGNALS: tuple[Signal, ...] = (
    # progress
    Signal("epoch", "Passes over the data set so far."),
    Signal("episodes_seen", "Episodes consumed since the start of training."),
    Signal("tokens_seen", "Prompt and response tokens seen since the start of training."),
    Signal("step_tokens", "Prompt and response tokens of the step."),
    # reward
    Signal("reward", "Mean score of a step's samples, before any KL penalty if the trainer logs that."),
    Signal("reward_max", "Largest score."),
    Signal("reward_min", "Smallest score."),
    Signal("reward_std", "Standard deviation of the scores. verl does not log it."),
    Signal(
        "true_reward",
        "Mean of a reward component that cannot be gamed. Only if `signals` in `config.yaml` names it: "
        '`true_reward: ["rewards/accuracy/mean"]`.',
    ),
    Signal(
        "zero_std_ratio",
        "Share of prompts whose samples all have the same score, so the policy learns nothing from them.",
    ),
    Signal("advantage_mean", "Mean advantage over response tokens."),
    Signal("advantage_max", "Largest advantage over response tokens."),
    Signal("advantage_min", "Smallest advantage over response tokens."),
    Signal("return_mean", "Mean return."),
    # KL divergences and entropy
    Signal(
        "kl",
        "KL divergence from the reference model. Other kinds of KL are separate signals, since their "
        "limits differ.",
    ),
    Signal(
        "kl_sequence", "KL divergence to the reference model in nats per response, summed over its tokens."
    ),
    Signal("kl_teacher", "KL divergence to the teacher model in nats per token."),
    Signal("kl_engine", "KL divergence between rollout engine and trainer in nats per token."),
    Signal("policy_kl", "KL divergence between the policy that sampled and the one after the update."),
    Signal("kl_coefficient", "Weight of the KL divergence to the reference in loss or reward."),
    Signal("entropy", "Entropy of the policy."),
    # losses and the policy update
    Signal("policy_loss", "Loss of the policy."),
    Signal("loss", "Total loss of the policy with all its terms."),
    Signal("grad_norm", "Norm of the policy's gradient before clipping."),
    Signal("policy_clip_ratio", "Share of tokens whose probability ratio was clipped."),
    Signal("policy_clip_lower_ratio", "Share of tokens whose probability ratio was clipped from below."),
    Signal("importance_weight", "Mean probability ratio between the current and the old policy."),
    Signal("learning_rate", "Learning rate of the policy."),
    Signal("update_skipped_ratio", "Share of the step's updates that were skipped."),
    # critic
    Signal("value_loss", "Loss of the critic."),
    Signal("value_mean", "Mean value that the critic predicts."),
    Signal("value_clip_ratio", "Share of the critic's predictions that were clipped."),
    Signal("explained_variance", "Share of the returns' variance that the critic explains; 1 is perfect."),
    Signal("critic_grad_norm", "Norm of the critic's gradient before clipping."),
    Signal("critic_learning_rate", "Learning rate of the critic."),
    # preference optimisation
    Signal("preference_reward_chosen", "Mean implicit reward of chosen answers."),
    Signal("preference_reward_rejected", "Mean implicit reward of rejected answers."),
    Signal("preference_reward_margin", "Mean implicit reward of chosen minus rejected answers."),
    Signal("preference_accuracy", "Share of pairs whose chosen answer has the higher implicit reward."),
    # lengths
    Signal("response_length", "Mean length of a response."),
    Signal("response_length_max", "Longest response."),
    Signal("response_length_min", "Shortest response of the batch in tokens."),
    Signal("truncated_ratio", "Share of responses cut at the length limit."),
    Signal("prompt_length", "Mean prompt length in tokens."),
    Signal("prompt_length_max", "Longest prompt of the batch in tokens."),
    Signal("prompt_length_min", "Shortest prompt of the batch in tokens."),
    Signal("prompt_truncated_ratio", "Share of prompts at the prompt length limit."),
    Signal("aborted_ratio", "Share of samples with an empty response."),
    Signal("turns", "Mean turns of a trajectory."),
    # validation
    Signal("validation_score", "Mean validation score over the data sets; higher is better."),
    Signal("validation_response_length", "Mean response length in validation in tokens."),
    # time of a step and of its phases
    Signal("step_seconds", "Time of a step as the trainer measured it."),
    Signal("rollout_seconds", "Time the step spent on generating responses."),
    Signal("reward_seconds", "Time the step spent on computing rewards."),
    Signal("old_log_prob_seconds", "Time the step spent on log probabilities of the old policy."),
    Signal("ref_log_prob_seconds", "Time the step spent on log probabilities of the reference model."),
    Signal("values_seconds", "Time the step spent on the critic's predictions."),
    Signal(
        "make_experience_seconds",
        "Time the step spent on rewards, log probabilities and advantages together.",
    ),
    Signal("advantage_seconds", "Time the step spent on advantages."),
    Signal("update_actor_seconds", "Time the step spent on updating the policy."),
    Signal("update_critic_seconds", "Time the step spent on updating the critic."),
    Signal("weight_sync_seconds", "Time the step spent on copying weights to the rollout engines."),
    Signal("save_checkpoint_seconds", "Time the step spent on saving a checkpoint."),
    Signal("validation_seconds", "Time the step spent on validation."),
    Signal("wait_seconds", "Time the trainer spent waiting for data in the step."),
    Signal("rollout_seconds_per_token", "Generation time per response token in seconds."),
    Signal("ref_log_prob_seconds_per_token", "Time of the reference model per token in seconds."),
    Signal("values_seconds_per_token", "Time of the critic's predictions per token in seconds."),
    Signal("advantage_seconds_per_token", "Time of the advantages per token in seconds."),
    Signal("update_actor_seconds_per_token", "Time of the policy update per token in seconds."),
    Signal("update_critic_seconds_per_token", "Time of the critic update per token in seconds."),
    Signal("sample_generation_seconds", "Mean generation time of one sample."),
    Signal("sample_generation_seconds_max", "Longest generation time of one sample."),
    Signal("tool_call_seconds", "Mean time that one sample spent in tool calls."),
    # speed
    Signal("tokens_per_second", "Prompt and response tokens over the step's time, all GPUs together."),
    Signal("tokens_per_second_per_gpu", "The same for one GPU, as the trainer logs it."),
    Signal("rollout_tokens_per_second", "Generated tokens per second over all rollout GPUs."),
    Signal("rollout_tokens_per_second_per_gpu", "Generated tokens per second and rollout GPU."),
    Signal("mfu_ratio", "Model FLOPs utilisation of the policy update."),
    Signal("critic_mfu_ratio", "Model FLOPs utilisation of the critic update."),
    Signal("inference_mfu_ratio", "Model FLOPs utilisation of the pass for old log probabilities."),
    # memory and load
    Signal(
        "gpu_memory_allocated_bytes", "Most GPU memory that the trainer's framework has allocated so far."
    ),
    Signal("gpu_memory_reserved_bytes", "Most GPU memory that the trainer's framework has reserved so far."),
    Signal("critic_gpu_memory_allocated_bytes", "Largest GPU memory allocated by the critic so far."),
    Signal("critic_gpu_memory_reserved_bytes", "Largest GPU memory reserved by the critic so far."),
    Signal("gpu_memory_used_bytes", "GPU memory in use as the trainer reports it."),
    Signal("gpu_utilization_ratio", "GPU utilisation as the trainer reports it."),
    Signal("host_memory_used_bytes", "Host memory in use, as the trainer logs it."),
    Signal("rank_tokens_difference", "Most minus fewest tokens of a data-parallel rank after balancing."),
    Signal("preemptions", "Mean preemptions of a sample by the rollout engine."),
    # how old the samples are
    Signal("staleness", "Mean number of weight versions between generation and training of a sample."),
    Signal("staleness_max", "Largest number of weight versions between generation and training of a sample."),
    Signal("version_span_max", "Most weight versions that one trajectory was generated across."),
    Signal("partial_rollout_ratio", "Share of trajectories that span more than one weight version."),
    Signal("stale_trajectories", "Trajectories trained on after a newer weight version existed, so far."),
    Signal("stale_samples_dropped", "Samples dropped because they were too old."),
    Signal("rollout_queue_size", "Finished samples waiting for the trainer."),
    Signal("rollout_idle_ratio", "Share of the time in which the rollout side was idle."),
    Signal("trainer_idle_ratio", "Share of the step in which the trainer waited for samples."),
    # rollout engine against trainer
    Signal("engine_prob_diff", "Mean difference of token probabilities between rollout engine and trainer."),
    Signal(
        "engine_prob_diff_max",
        "Largest difference of token probabilities between rollout engine and trainer.",
    ),
    Signal("engine_prob_correlation", "Correlation of token probabilities of rollout engine and trainer."),
    Signal(
        "engine_prob_error",
        "Mean factor between token probabilities of rollout engine and trainer; 1 is perfect.",
    ),
    Signal(
        "engine_logprob_diff",
        "Mean difference of log probabilities between rollout engine and trainer in nats.",
    ),
    Signal("engine_importance_weight", "Mean importance weight between trainer and rollout engine."),
    Signal(
        "engine_effective_sample_ratio",
        "Effective sample size, as a share of the samples, when weighted by trainer over rollout engine.",
    ),
)

NAMES = tuple(signal.name for signal in SIGNALS)

PART_SIGNALS: tuple[PartSignal, ...] = (
    PartSignal("reward_component", "component", "Mean of one of several reward functions."),
    PartSignal("reward_component_std", "component", "Standard deviation of one of several reward functions."),
    # of a single data set as well: else its key would have its series among the raw ones
    PartSignal("validation_component", "dataset", "Validation score of one data set; higher is better."),
)
