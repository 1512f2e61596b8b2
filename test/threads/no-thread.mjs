// In the place of a sandbox thread: whoever starts it has a fault.
throw new Error('a sandbox thread was started')
