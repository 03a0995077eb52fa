"""MA-MAESN: its learner, its rounds of meta-training, its stages."""
