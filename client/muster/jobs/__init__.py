"""Operations on jobs and queues with their models, logs as pages or as a stream."""
