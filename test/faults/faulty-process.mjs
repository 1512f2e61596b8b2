// Loaded before a server: a promise is rejected, and nobody handles that, when the process gets SIGUSR2.
process.on('SIGUSR2', () => {
  void Promise.reject(new Error('a rejection that nobody handles'))
})
