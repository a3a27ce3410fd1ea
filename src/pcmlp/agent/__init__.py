"""Deep PC-MLP in a few lines, with the conventions of stable-baselines3.

    agent = DeepPCMLP(env, reward=reward, terminal=terminal)    # a Gymnasium environment, or the name of a task
    agent.learn(total_timesteps=2_000, progress_bar=True)
    action, _ = agent.predict(observation, deterministic=True)
    agent.save("agent.safetensors");  agent = DeepPCMLP.load("agent.safetensors")

A planner in a model has to compute rewards and ends, so `reward` and `terminal` are functions of (s, a, s') written in
jax.numpy; a function that is not given is learned. The policy to deploy is planned without the bonus.
"""

from pcmlp.agent.deep_pcmlp import DeepPCMLP

__all__ = ["DeepPCMLP"]
