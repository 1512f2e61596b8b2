/** One thing that is looked at when somebody asks how the server is. Further members are plain data. */
export interface HealthFact {
  readonly name: string
  readonly ok: boolean
  /** What is wrong, in a sentence that whoever may ask can read. */
  readonly reason?: string
  readonly [more: string]: unknown
}
