"""What is measured of a trained model: accuracy, calibration, attacks, gradient variance."""
