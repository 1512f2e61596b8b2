import fp from 'fastify-plugin'

/** Every method whose request may come with a body. */
const WITH_BODY = ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'COPY']

/**
 * Makes COPY known, and tells Fastify that no method has a body: body.ts reads them off the socket. Fastify's own
 * reading would refuse media types that CouchDB never looks at (protocol.md 1.3), and has no use for streams.
 */
export const methods = fp(
  async (app) => {
    for (const method of WITH_BODY) app.addHttpMethod(method, { hasBody: false, overrideExisting: true })
  },
  { name: 'methods' },
)
