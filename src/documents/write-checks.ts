/**
 * What the functions of design documents have to say of a write: validate functions of an ordinary document, the
 * check of a design document that is itself written. `_local` documents do not come here.
 */
import type { CouchError } from '../core/errors.ts'
import { isDesignId } from '../core/ids.ts'
import {
  AMPLE_SPACE,
  type DocumentPolicy,
  type Rules,
  type Space,
  shortage,
  type UserCtx,
} from '../core/types.ts'
import type { Sandbox, UserFunction, ValidateCall } from '../sandbox/messages.ts'
import type { DatabaseStore, Decision, StoreView } from '../storage/engine.ts'
import { spliceDocument } from './body.ts'
import type { DocumentRules } from './database.ts'
import { checkDesignDoc, compileViews, type ViewFunction } from './design-docs.ts'
import { isBuiltInDesign } from './document-policy.ts'
import type { EditResult } from './edit.ts'
import type { RevisionCheck } from './edited-document.ts'
import { DeletionWatch, type MassDeletion } from './time-machine/time-machine-calls.ts'
import {
  type CallContext,
  callContext,
  type FunctionList,
  functionFailure,
  runValidateFunctions,
  ValidateFunctions,
  validateCall,
} from './validate-functions.ts'

/** Characters of documents that one round gathers for validate functions; others are put off to the next. */
const ROUND_CHARS = 16 * 1024 * 1024

/** What must be known before an edit can be decided; `at` is the edit's place among those of its document. */
export type MissingFact =
  | { readonly kind: 'validators' }
  | {
      readonly kind: 'verdict'
      readonly at: number
      readonly list: FunctionList
      readonly call: ValidateCall
    }
  | {
      readonly kind: 'compilation'
      readonly at: number
      readonly body: string
      readonly fn: Omit<UserFunction, 'path'>
      readonly functions: readonly ViewFunction[]
    }

type Verdict = Extract<MissingFact, { kind: 'verdict' }>
type Asked = Exclude<MissingFact, { kind: 'validators' }>

/** What was found out of one edit: null where nothing speaks against it. */
interface KnownFact {
  readonly need: Asked
  readonly refusal: CouchError | null
}

/** What is known so far of the edits of one document. */
export class KnownFacts {
  readonly #byEdit = new Map<number, KnownFact[]>()

  get isEmpty(): boolean {
    return this.#byEdit.size === 0
  }

  add(need: Asked, refusal: CouchError | null): void {
    const found = this.#byEdit.get(need.at)
    if (found === undefined) this.#byEdit.set(need.at, [{ need, refusal }])
    else found.push({ need, refusal })
  }

  /** undefined when it is not known yet. */
  find(at: number, matches: (need: Asked) => boolean): CouchError | null | undefined {
    return this.#byEdit.get(at)?.find(({ need }) => matches(need))?.refusal
  }
}

/** What {@link WriteChecks} are made of. */
interface WriteChecksOptions {
  /** The database's. */
  readonly name: string
  readonly incarnation: number
  readonly sandbox: Sandbox
  rules(): Pick<Rules, 'policy' | 'massDeletion' | 'maxLeaves' | 'maxAttachments'>
  /** What is left of the disk now; by default there is room. */
  space?(): Space
  /** What the database asks of its documents itself, as `_users` does. */
  readonly documentRules?: DocumentRules | undefined
  /** Most of the database was deleted within a minute; absent: nobody cares. */
  readonly onMassDeletion?: ((found: MassDeletion) => void) | undefined
}

/** The checks of one open database. */
export class WriteChecks {
  /** Its name. */
  readonly database: string
  readonly sandbox: Sandbox
  readonly incarnation: number
  readonly validateFunctions: ValidateFunctions
  readonly documentRules: DocumentRules | undefined
  readonly deletions: DeletionWatch
  readonly #rules: WriteChecksOptions['rules']
  readonly #space: () => Space

  constructor(store: DatabaseStore, options: WriteChecksOptions) {
    const { name, incarnation, sandbox, rules, documentRules, space = () => AMPLE_SPACE } = options
    this.#space = space
    this.database = name
    this.sandbox = sandbox
    this.incarnation = incarnation
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

  /** What a document may have of leaves, deleted ones too, and of attachments. */
  get documentBounds(): Pick<Rules, 'maxLeaves' | 'maxAttachments'> {
    return this.#rules()
  }

  /** What a user's write that grows is refused with now; null while there is room. */
  shortage(user: UserCtx): CouchError | null {
    return shortage(this.#space(), user)
  }
}

/** The checks of one request, round by round. */
export class RequestChecks {
  readonly #checks: WriteChecks
  readonly #user: UserCtx
  /** The list that this request has read, which may be too long to be kept for others. */
  #list: FunctionList | null = null

  constructor(checks: WriteChecks, user: UserCtx) {
    this.#checks = checks
    this.#user = user
  }

  nextAttempt(): Attempt {
    const list = this.#checks.validateFunctions.known ?? this.#list
    return new Attempt(this.#checks.incarnation, this.#user, list)
  }

  /**
   * Finds out what is needed; nothing is locked meanwhile.
   * @returns a refusal or null for each need, in their order
   * @throws contended, or a fault of the store, when the list of validate functions cannot be read
   */
  async lookUp(needs: readonly MissingFact[]): Promise<(CouchError | null)[]> {
    if (needs.some(({ kind }) => kind === 'validators')) {
      this.#list = await this.#checks.validateFunctions.read()
    }
    const [ofDesigns, ofVerdicts] = await Promise.all([this.#compile(needs), this.#runFunctions(needs)])
    return needs.map((need) => ofDesigns.get(need) ?? ofVerdicts.get(need) ?? null)
  }

  async #compile(needs: readonly MissingFact[]): Promise<Map<MissingFact, CouchError | null>> {
    const refusals = new Map<MissingFact, CouchError | null>()
    for (const need of needs) {
      if (need.kind !== 'compilation') continue
      const compiled = compileViews(this.#checks.sandbox, need.fn, need.functions)
      refusals.set(need, await compiled.then(() => null, functionFailure))
    }
    return refusals
  }

  async #runFunctions(needs: readonly MissingFact[]): Promise<Map<MissingFact, CouchError | null>> {
    const asked = needs.filter((need) => need.kind === 'verdict')
    const [first] = asked
    if (first === undefined) return new Map()
    // One round knows one list.
    const calls = asked.map(({ call }) => call)
    const refusals = await runValidateFunctions(this.#checks.sandbox, first.list.functions, calls)
    return new Map(asked.map((need, at) => [need, refusals[at] ?? null]))
  }
}

/** One attempt at the documents of a request. */
export class Attempt {
  readonly #incarnation: number
  readonly #user: UserCtx
  readonly #list: FunctionList | null
  #charsLeft = ROUND_CHARS

  constructor(incarnation: number, user: UserCtx, list: FunctionList | null) {
    this.#incarnation = incarnation
    this.#user = user
    this.#list = list
  }

  /** Whether documents as they are stored will be looked at. */
  get touchesBody(): boolean {
    return (this.#list?.functions.length ?? 0) > 0
  }

  /**
   * Decides the edits of a document, or tells what must be known before; with no needs at all the document is put
   * off to the next round. Where something is not known, it goes on as if nothing spoke against the edit, so that
   * what the later ones need is asked for at once.
   * @param apply decides, asking `inspect` about each revision that would be made
   */
  decide(
    id: string,
    view: StoreView,
    known: KnownFacts,
    apply: (inspect?: RevisionCheck) => Decision<EditResult[]>,
  ): Decision<EditResult[], MissingFact> {
    const needs: MissingFact[] = []
    if (isDesignId(id)) {
      const decision = apply(this.#inspectDesign(id, known, needs))
      return needs.length === 0 ? decision : { needs }
    }
    const list = this.#list
    if (list === null || list.designVersion !== view.designVersion) return { needs: [{ kind: 'validators' }] }
    if (list.functions.length === 0) return apply()
    if (this.#charsLeft <= 0 && known.isEmpty) return { needs }
    const context = callContext(list.database, this.#user, view.security)
    const decision = apply(this.#inspectOrdinary(id, list, context, known, needs))
    return needs.length === 0 ? decision : { needs }
  }

  /** Whether functions compile is found out for a body. */
  #inspectDesign(id: string, known: KnownFacts, needs: MissingFact[]): RevisionCheck {
    return ({ at, doc: { body, deleted }, rev }) => {
      if (deleted) return
      const functions = checkDesignDoc(body)
      if (functions.length === 0) return
      const refusal = known.find(at, (need) => need.kind === 'compilation' && need.body === body)
      if (refusal !== undefined) return refuse(refusal)
      const fn = { database: this.#incarnation, ddoc: id, rev, source: spliceDocument({ id, rev, body }) }
      needs.push({ kind: 'compilation', at, body, fn, functions })
    }
  }

  /** A verdict holds for the functions and for the very texts that they were asked about, and for nothing else. */
  #inspectOrdinary(
    id: string,
    list: FunctionList,
    context: CallContext,
    known: KnownFacts,
    needs: MissingFact[],
  ): RevisionCheck {
    return (candidate) => {
      const { at } = candidate
      const call = validateCall(id, candidate, context)
      const refusal = known.find(at, (need) => need.kind === 'verdict' && isSame(need, list, call))
      if (refusal !== undefined) return refuse(refusal)
      this.#charsLeft -= call.newDoc.length + call.oldDoc.length
      needs.push({ kind: 'verdict', at, list, call })
    }
  }
}

function refuse(refusal: CouchError | null): void {
  if (refusal !== null) throw refusal
}

function isSame(need: Verdict, { key }: FunctionList, call: ValidateCall): boolean {
  const { newDoc, oldDoc, userCtx, security } = need.call
  return (
    need.list.key === key &&
    userCtx === call.userCtx &&
    security === call.security &&
    newDoc === call.newDoc &&
    oldDoc === call.oldDoc
  )
}
