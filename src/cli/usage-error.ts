/** A mistake on the command line; the message is one line. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}
