import fp from 'fastify-plugin'

/** Notes of each request that a device token let in what sent it, for the list of the account's tokens. */
export const tokenUse = fp(
  async (app) => {
    const { tokens } = app.services
    app.addHook('onRequest', (request, _reply, done) => {
      const { token } = request.identity
      if (token !== null) tokens.noteUse(token, request.headers['user-agent'], request.address)
      done()
    })
  },
  { name: 'token-use', dependencies: ['authentication'] },
)
