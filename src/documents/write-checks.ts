/**
 * The checks of writes by functions of design documents: validate functions check ordinary documents, and the
 * functions of a design document must compile before it is stored. `_local` documents have no such checks.
 *
 * {@link WriteChecks} belong to a database, {@link RequestChecks} to one request, and an {@link Attempt} is one try to
 * decide the request's documents; write.ts shows how attempts follow one another.
 */
import { asCouchError, type CouchError } from '../core/errors.ts'
import { isDesignId } from '../core/ids.ts'
import { AMPLE_SPACE, type DocumentPolicy, type Rules, type Space, type UserCtx } from '../core/types.ts'
import type { Sandbox, UserFunction, ValidateCall } from '../sandbox/messages.ts'
import type { DatabaseStore, Decision, StoreView } from '../storage/engine.ts'
import { spliceDocument } from './body.ts'
import type { DocumentRules } from './database.ts'
import { DeletionWatch, type MassDeletion } from './deletion-watch.ts'
import { checkDesignDoc, compileViews, type ViewFunction } from './design-docs.ts'
import { isBuiltInDesign, shortage } from './document-policy.ts'
import type { EditResult } from './edit.ts'
import type { RevisionCheck } from './incoming-document.ts'
import {
  type CallContext,
  callContext,
  type FunctionList,
  runValidateFunctions,
  ValidateFunctions,
  validateCall,
} from './validate-functions.ts'

/**
 * Maximum number of characters of documents that one attempt gives to validate functions. Other documents wait for the
 * next attempt.
 */
const ATTEMPT_CHARS = 16 * 1024 * 1024

interface WriteChecksOptions {
  /** The database's name. */
  readonly name: string
  readonly incarnation: number
  readonly sandbox: Sandbox
  rules(): Pick<Rules, 'policy' | 'massDeletion' | 'maxLeaves' | 'maxAttachments'>
  /** The free disk space now; unlimited by default. */
  space?(): Space
  /** The database's own rules for its documents; `_users` has such rules. */
  readonly documentRules?: DocumentRules | undefined
  /** Bytes of the database's indexes; 0 by default. */
  viewBytes?(): Promise<number>
  /** Called when most of the database is deleted within a minute. */
  readonly onMassDeletion?: ((found: MassDeletion) => void) | undefined
  /** Called when a client has shown that the database has lost updates. */
  onLost?(): void
}

/** The checks of one open database. */
export class WriteChecks {
  /** Its name. */
  readonly database: string
  readonly sandbox: Sandbox
  readonly incarnation: number
  readonly partitioned: boolean
  readonly validateFunctions: ValidateFunctions
  readonly documentRules: DocumentRules | undefined
  readonly deletions: DeletionWatch
  /** What the owner's quota counts of the database, in bytes. */
  readonly measure: () => Promise<number>
  /** A client has shown that the database has lost updates. */
  readonly onLost: () => void
  readonly #rules: WriteChecksOptions['rules']
  readonly #space: () => Space

  constructor(store: DatabaseStore, options: WriteChecksOptions) {
    const { name, incarnation, sandbox, rules, documentRules, space = () => AMPLE_SPACE } = options
    this.#space = space
    this.measure = async () => {
      const [{ sizes }, indexes = 0] = await Promise.all([store.info(), options.viewBytes?.()])
      return sizes.active + indexes
    }
    this.onLost = () => options.onLost?.()
    this.database = name
    this.sandbox = sandbox
    this.incarnation = incarnation
    this.partitioned = store.partitioned
    this.documentRules = documentRules
    this.#rules = rules
    this.deletions = new DeletionWatch(
      () => rules().massDeletion,
      (found) => options.onMassDeletion?.(found),
    )
    const mayRun = (id: string, body: string) => this.policy.designDocs || isBuiltInDesign(name, id, body)
    this.validateFunctions = new ValidateFunctions(store, incarnation, mayRun)
  }

  get policy(): DocumentPolicy {
    return this.#rules().policy
  }

  /** The maximum number of leaves, including deleted ones, and of attachments of a document. */
  get documentBounds(): Pick<Rules, 'maxLeaves' | 'maxAttachments'> {
    return this.#rules()
  }

  /** The error for a user's write that needs space; null while there is enough. */
  shortage(user: UserCtx): CouchError | null {
    return shortage(this.#space(), user)
  }
}

/** A fact that an edit's decision depends on; `at` is the edit's index among those of its document. */
export type MissingFact =
  /** The database's validate functions. */
  | { readonly kind: 'functions' }
  /** The result of the validate functions for a new revision. */
  | {
      readonly kind: 'validation'
      readonly at: number
      readonly list: FunctionList
      readonly call: ValidateCall
    }
  /** Whether the functions of a design document compile. */
  | {
      readonly kind: 'compilation'
      readonly at: number
      readonly body: string
      readonly fn: Omit<UserFunction, 'path'>
      readonly functions: readonly ViewFunction[]
    }

type Validation = Extract<MissingFact, { kind: 'validation' }>
type EditFact = Exclude<MissingFact, { kind: 'functions' }>

/** The facts known so far about the edits of one document. Each is a refusal, or null if there is none. */
export class KnownFacts {
  readonly #byEdit = new Map<number, { readonly fact: EditFact; readonly refusal: CouchError | null }[]>()

  get isEmpty(): boolean {
    return this.#byEdit.size === 0
  }

  add(fact: EditFact, refusal: CouchError | null): void {
    const known = this.#byEdit.get(fact.at)
    if (known === undefined) this.#byEdit.set(fact.at, [{ fact, refusal }])
    else known.push({ fact, refusal })
  }

  /** @returns undefined for a fact that is not known yet */
  find(at: number, matches: (fact: EditFact) => boolean): CouchError | null | undefined {
    return this.#byEdit.get(at)?.find(({ fact }) => matches(fact))?.refusal
  }
}

/** The checks of one request, attempt by attempt. */
export class RequestChecks {
  readonly #checks: WriteChecks
  readonly #user: UserCtx
  /** The list that this request has read; it may be too long to be kept for others. */
  #list: FunctionList | null = null

  constructor(checks: WriteChecks, user: UserCtx) {
    this.#checks = checks
    this.#user = user
  }

  nextAttempt(): Attempt {
    const list = this.#checks.validateFunctions.known ?? this.#list
    return new Attempt(this.#checks, this.#user, list)
  }

  /**
   * Looks up missing facts without holding a lock.
   * @returns a refusal or null for each fact, in their order
   * @throws contended, or an error of the store, if the list of validate functions cannot be read
   */
  async lookUp(facts: readonly MissingFact[]): Promise<(CouchError | null)[]> {
    if (facts.some(({ kind }) => kind === 'functions')) {
      this.#list = await this.#checks.validateFunctions.read()
    }
    const [compiled, validated] = await Promise.all([this.#compile(facts), this.#validate(facts)])
    return facts.map((fact) => compiled.get(fact) ?? validated.get(fact) ?? null)
  }

  async #compile(facts: readonly MissingFact[]): Promise<Map<MissingFact, CouchError | null>> {
    const refusals = new Map<MissingFact, CouchError | null>()
    for (const fact of facts) {
      if (fact.kind !== 'compilation') continue
      const compiled = compileViews(this.#checks.sandbox, fact.fn, fact.functions)
      refusals.set(fact, await compiled.then(() => null, asCouchError))
    }
    return refusals
  }

  async #validate(facts: readonly MissingFact[]): Promise<Map<MissingFact, CouchError | null>> {
    const validations = facts.filter((fact) => fact.kind === 'validation')
    const [first] = validations
    if (first === undefined) return new Map()
    const calls = validations.map(({ call }) => call)
    // All facts of an attempt have the same list.
    const refusals = await runValidateFunctions(this.#checks.sandbox, first.list.functions, calls)
    return new Map(validations.map((fact, at) => [fact, refusals[at] ?? null]))
  }
}

type AttemptedDatabase = Pick<WriteChecks, 'incarnation' | 'partitioned'>

/** One try to decide the documents of a request. */
export class Attempt {
  readonly #database: AttemptedDatabase
  readonly #user: UserCtx
  readonly #list: FunctionList | null
  #charsLeft = ATTEMPT_CHARS
  /** The characters of each document's calls. */
  readonly #spent = new Map<KnownFacts, number>()

  constructor(database: AttemptedDatabase, user: UserCtx, list: FunctionList | null) {
    this.#database = database
    this.#user = user
    this.#list = list
  }

  /** Whether validate functions read the revision before each new one of a document. */
  readsOld(id: string): boolean {
    return this.#list !== null && this.#list.functions.length > 0 && !isDesignId(id) && !this.#user.isCopying
  }

  /**
   * Decides the edits of a document, or returns the facts that it needs first; an empty list of them postpones the
   * document to the next attempt. An edit with a missing fact is decided as if it were allowed, so that one attempt
   * also finds the facts for later edits.
   * @param apply decides the edits, with a check of each new revision
   */
  decide(
    id: string,
    view: StoreView,
    known: KnownFacts,
    apply: (check?: RevisionCheck) => Decision<EditResult[]>,
  ): Decision<EditResult[], MissingFact> {
    if (this.#user.isCopying) return apply()
    const needs: MissingFact[] = []
    if (isDesignId(id)) {
      const decision = apply(this.#designCheck(id, known, needs))
      return needs.length === 0 ? decision : { needs }
    }
    const list = this.#list
    if (list === null || list.designVersion !== view.designVersion) return { needs: [{ kind: 'functions' }] }
    if (list.functions.length === 0) return apply()
    // An engine may decide a document again.
    this.#charsLeft += this.#spent.get(known) ?? 0
    this.#spent.set(known, 0)
    if (this.#charsLeft <= 0 && known.isEmpty) return { needs }
    const context = callContext(list.database, this.#user, view.security)
    const decision = apply(this.#validation(id, list, context, known, needs))
    return needs.length === 0 ? decision : { needs }
  }

  /** Checks the shape of a design document, and with a known fact whether its functions compile. */
  #designCheck(id: string, known: KnownFacts, needs: MissingFact[]): RevisionCheck {
    return ({ at, doc: { body, deleted }, rev }) => {
      if (deleted) return
      const functions = checkDesignDoc(body, this.#database.partitioned)
      if (functions.length === 0) return
      const refusal = known.find(at, (fact) => fact.kind === 'compilation' && fact.body === body)
      if (refusal !== undefined) return throwRefusal(refusal)
      const fn = {
        database: this.#database.incarnation,
        ddoc: id,
        rev,
        source: spliceDocument({ id, rev, body }),
      }
      needs.push({ kind: 'compilation', at, body, fn, functions })
    }
  }

  /** Checks an ordinary document. A result holds only for the same functions and exactly the same texts. */
  #validation(
    id: string,
    list: FunctionList,
    context: CallContext,
    known: KnownFacts,
    needs: MissingFact[],
  ): RevisionCheck {
    return (revision) => {
      const { at } = revision
      const call = validateCall(id, revision, context)
      const refusal = known.find(at, (fact) => fact.kind === 'validation' && isSame(fact, list, call))
      if (refusal !== undefined) return throwRefusal(refusal)
      const chars = call.newDoc.length + call.oldDoc.length
      this.#charsLeft -= chars
      this.#spent.set(known, (this.#spent.get(known) ?? 0) + chars)
      needs.push({ kind: 'validation', at, list, call })
    }
  }
}

function throwRefusal(refusal: CouchError | null): void {
  if (refusal !== null) throw refusal
}

function isSame(fact: Validation, { key }: FunctionList, call: ValidateCall): boolean {
  const { newDoc, oldDoc, userCtx, security } = fact.call
  return (
    fact.list.key === key &&
    userCtx === call.userCtx &&
    security === call.security &&
    newDoc === call.newDoc &&
    oldDoc === call.oldDoc
  )
}
