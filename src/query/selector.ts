/**
 * Mango selectors with CouchDB's semantics (protocol.md 10.2, mango_selector). Pure.
 *
 * CouchDB pushes `$not` and `$nor` down to single conditions and then applies these conditions only to existing fields.
 * A document without the field therefore fails every condition, even `{"$not": {"a": 1}}`, except `$exists: false`.
 * CouchDB does not push negations into `$elemMatch`, `$allMatch` and `$keyMapMatch`, so a `$not` there matches a
 * missing field.
 */

import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { type Compare, compareJson, compareRaw } from './collation.ts'
import { badArgument, compileCondition, listOf, not, type Predicate } from './conditions.ts'
import { ABSENT, parseFieldPath, UNREACHABLE, valueAt } from './projection.ts'
import { Budget, LOOKUP } from './regex.ts'

export interface Selector {
  /** Whether a JSON value matches. @throws invalid_selector if the check would take too long */
  matches(value: unknown): boolean
  /** Whether the selector may read the member of this name. */
  mentions(name: string): boolean
}

/** The maximum depth of a selector, in levels. */
const MAX_DEPTH = 64
/**
 * The maximum number of fields, operators and junctions in a selector. The values of lists, such as those of `$in`, do
 * not count.
 */
const MAX_CONDITIONS = 5000

/**
 * Compiles a selector.
 * @param selector the parsed JSON
 * @throws invalid_selector, invalid_operator, not_supported, bad_arg, with CouchDB's texts; only the texts for a
 *   selector that is too large are our own
 */
export function compileSelector(selector: unknown): Selector {
  if (!isJsonObject(selector)) {
    throw new CouchError('invalid_selector', 'Selector error: expected a JSON object')
  }
  const compiler = new Compiler()
  const matches = Object.keys(selector).length === 0 ? () => true : compiler.compile(selector, compiler.root)
  return {
    matches: (value) => {
      compiler.budget.restart()
      return matches(value)
    },
    mentions: (name) => compiler.names.has(name),
  }
}

/** The position of a part within a selector. */
interface Position {
  /** The name of the field so far; '' for the value itself. */
  readonly field: string
  /** Whether the part is below an odd number of negations. */
  readonly isNegated: boolean
  /** Whether the part is within `$elemMatch`, `$allMatch` or `$keyMapMatch`, where negations are not moved. */
  readonly isElement: boolean
  /** Whether only fields and negations are above the part. */
  readonly isRoot: boolean
  readonly depth: number
  readonly compare: Compare
}

class Compiler {
  /** The budget for the current document. */
  readonly budget = new Budget()
  /** The first steps of all field names. */
  readonly names = new Set<string>()
  readonly root: Position = {
    field: '',
    isNegated: false,
    isElement: false,
    isRoot: true,
    depth: 0,
    compare: compareJson,
  }
  #conditions = 0

  compile(selector: unknown, position: Position): Predicate {
    if (position.depth > MAX_DEPTH) throw tooLarge(`it is nested deeper than ${MAX_DEPTH} levels`)
    const members = isJsonObject(selector) ? Object.entries(selector) : []
    const [first] = members
    // As in CouchDB, an empty object is also a value that the field must equal.
    if (first === undefined) return this.#condition('$eq', selector, position)
    if (members.length === 1) return this.#member(...first, position)
    const parts = members.map(([name, value]) => ({ [name]: value }))
    return this.#junction('$and', parts, position)
  }

  #member(name: string, arg: unknown, position: Position): Predicate {
    switch (name) {
      case '$and':
      case '$or':
        return this.#junction(name, listOf(name, arg), position)
      case '$nor':
        return this.#negate({ $or: listOf(name, arg) }, position)
      case '$not':
        if (!isJsonObject(arg)) throw badArgument(name, arg)
        return this.#negate(arg, position)
      case '$elemMatch':
      case '$allMatch':
      case '$keyMapMatch':
        if (!isJsonObject(arg)) throw badArgument(name, arg)
        return this.#ofField(this.#nested(name, arg, position), position)
      default:
        if (name.startsWith('$')) return this.#condition(name, arg, position)
        return this.compile(arg, this.#below(position, name))
    }
  }

  #below(position: Position, name: string): Position {
    const field = position.field === '' ? name : `${position.field}.${name}`
    return { ...position, field, depth: position.depth + 1 }
  }

  /** Matches all or any of the selectors. An empty list matches everything, even if it is negated. */
  #junction(operator: '$and' | '$or', selectors: readonly unknown[], position: Position): Predicate {
    const below = { ...position, isRoot: false, depth: position.depth + 1 }
    const parts = selectors.map((selector) => this.compile(selector, below))
    this.#count()
    if (parts.length === 0) return this.#counted(() => true)
    const isAll = (operator === '$and') !== position.isNegated
    return isAll
      ? (value) => parts.every((matches) => matches(value))
      : (value) => parts.some((matches) => matches(value))
  }

  #negate(selector: object, position: Position): Predicate {
    const below = { ...position, depth: position.depth + 1 }
    if (position.isElement) return not(this.compile(selector, below))
    return this.compile(selector, { ...below, isNegated: !position.isNegated })
  }

  #nested(operator: '$elemMatch' | '$allMatch' | '$keyMapMatch', arg: object, position: Position): Predicate {
    const { compare } = valuePosition(position)
    const below = { ...this.root, isElement: true, isRoot: false, depth: position.depth + 1, compare }
    const inner = this.compile(arg, below)
    const matches = this.#counted(inner)
    const found: Predicate = {
      $elemMatch: (value: unknown) => Array.isArray(value) && value.some(matches),
      $allMatch: (value: unknown) => Array.isArray(value) && value.length > 0 && value.every(matches),
      $keyMapMatch: (value: unknown) => isJsonObject(value) && this.#keysOf(value).some(matches),
    }[operator]
    return position.isNegated ? not(found) : found
  }

  #keysOf(value: object): readonly string[] {
    const keys = Object.keys(value)
    this.budget.spend(keys.length * LOOKUP)
    return keys
  }

  #counted(matches: Predicate, steps = 1): Predicate {
    return (value) => {
      this.budget.spend(steps * LOOKUP)
      return matches(value)
    }
  }

  #condition(operator: string, arg: unknown, position: Position): Predicate {
    if (operator === '$exists') return this.#exists(arg, position)
    const { compare } = valuePosition(position)
    return this.#ofField(compileCondition(operator, arg, compare, position.isNegated, this.budget), position)
  }

  #exists(arg: unknown, position: Position): Predicate {
    if (typeof arg !== 'boolean') throw badArgument('$exists', arg)
    const mustExist = arg !== position.isNegated
    if (mustExist) return this.#ofField(() => true, position)
    const path = this.#pathOf(position)
    return this.#counted((value) => valueAt(value, path) === ABSENT, path.length)
  }

  /** Applies the condition to the field at this position, if the document has it. */
  #ofField(condition: Predicate, position: Position): Predicate {
    const path = this.#pathOf(position)
    if (path.length === 0) return this.#counted(condition)
    const matches: Predicate = (value) => {
      const found = valueAt(value, path)
      return found !== ABSENT && found !== UNREACHABLE && condition(found)
    }
    return this.#counted(matches, path.length)
  }

  #pathOf({ field, isRoot }: Position): readonly string[] {
    this.#count()
    if (field === '') {
      if (!isRoot) return []
      throw new CouchError('invalid_selector', 'One or more conditions is missing a field name.')
    }
    const path = parseFieldPath(field)
    this.names.add(path[0] ?? '')
    return path
  }

  #count(): void {
    if (++this.#conditions > MAX_CONDITIONS) throw tooLarge(`it has more than ${MAX_CONDITIONS} conditions`)
  }
}

/** Ids are compared by their bytes. */
function valuePosition(position: Position): Position {
  return position.field === '_id' ? { ...position, compare: compareRaw } : position
}

function tooLarge(why: string): CouchError {
  return new CouchError('invalid_selector', `Selector error: ${why}`)
}
