"""From a plan and the cluster's options to Service, Secret and pods, and their labels."""
