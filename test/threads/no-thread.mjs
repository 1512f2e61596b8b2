// Replaces a sandbox thread that must not start.
throw new Error('a sandbox thread was started')
