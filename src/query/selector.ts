/**
 * Mango selectors, with the meaning that CouchDB gives them (protocol.md 10.2, mango_selector). Pure.
 *
 * CouchDB pushes `$not` and `$nor` down to single conditions and then asks these of a field that is there, so that a
 * document without the field fails each of them, `{"$not": {"a": 1}}` too, and passes `$exists: false` alone. Within
 * `$elemMatch` and its kin it does not push, so there a `$not` is passed by what lacks the field.
 */

import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { type Compare, compareJson, compareRaw } from './collation.ts'
import { badArgument, compileCondition, listOf, not, type Predicate } from './conditions.ts'
import { ABSENT, NO_WAY, parseFieldPath, valueAt } from './projection.ts'
import { Budget, LOOK } from './regex.ts'

export interface Selector {
  /** Whether a JSON value passes. @throws invalid_selector when finding out would take too long */
  matches(value: unknown): boolean
  /** Whether a member of this name of the document may be looked at. */
  mentions(name: string): boolean
}

/** Levels of a selector. */
const MAX_DEPTH = 64
/** Fields, operators and junctions of a selector; values of `$in` and its like are not counted. */
const MAX_CONDITIONS = 5000

/**
 * Compiles a selector.
 * @param selector as JSON.parse made it
 * @throws invalid_selector, invalid_operator, not_supported, bad_arg with the texts of CouchDB's refusals; those of a
 *   selector that is too large are ours
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

/** Where in a selector a part of it stands. */
interface Place {
  /** The field so far, '' for the value itself. */
  readonly field: string
  /** Whether an odd number of negations stands above it. */
  readonly isNegated: boolean
  /** Within `$elemMatch` and its kin: negations stay where they are. */
  readonly isElement: boolean
  /** Nothing but fields and negations stands above it. */
  readonly isRoot: boolean
  readonly depth: number
  readonly compare: Compare
}

class Compiler {
  /** Of the document that is looked at. */
  readonly budget = new Budget()
  /** First names of all fields. */
  readonly names = new Set<string>()
  readonly root: Place = {
    field: '',
    isNegated: false,
    isElement: false,
    isRoot: true,
    depth: 0,
    compare: compareJson,
  }
  #conditions = 0

  compile(selector: unknown, place: Place): Predicate {
    if (place.depth > MAX_DEPTH) throw tooLarge(`it is nested deeper than ${MAX_DEPTH} levels`)
    const members = isJsonObject(selector) ? Object.entries(selector) : []
    const [first] = members
    // CouchDB takes an empty object, too, for the value that the field must have.
    if (first === undefined) return this.#condition('$eq', selector, place)
    if (members.length === 1) return this.#member(...first, place)
    const parts = members.map(([name, value]) => ({ [name]: value }))
    return this.#junction('$and', parts, place)
  }

  #member(name: string, arg: unknown, place: Place): Predicate {
    switch (name) {
      case '$and':
      case '$or':
        return this.#junction(name, listOf(name, arg), place)
      case '$nor':
        return this.#negate({ $or: listOf(name, arg) }, place)
      case '$not':
        if (!isJsonObject(arg)) throw badArgument(name, arg)
        return this.#negate(arg, place)
      case '$elemMatch':
      case '$allMatch':
      case '$keyMapMatch':
        if (!isJsonObject(arg)) throw badArgument(name, arg)
        return this.#ofField(this.#nested(name, arg, place), place)
      default:
        if (name.startsWith('$')) return this.#condition(name, arg, place)
        return this.compile(arg, this.#below(place, name))
    }
  }

  #below(place: Place, name: string): Place {
    const field = place.field === '' ? name : `${place.field}.${name}`
    return { ...place, field, depth: place.depth + 1 }
  }

  /** All, or any, of some selectors; an empty list lets everything through, also where it is negated. */
  #junction(operator: '$and' | '$or', selectors: readonly unknown[], place: Place): Predicate {
    const below = { ...place, isRoot: false, depth: place.depth + 1 }
    const parts = selectors.map((selector) => this.compile(selector, below))
    this.#count()
    if (parts.length === 0) return this.#looking(() => true)
    const isAll = (operator === '$and') !== place.isNegated
    return isAll
      ? (value) => parts.every((matches) => matches(value))
      : (value) => parts.some((matches) => matches(value))
  }

  #negate(selector: object, place: Place): Predicate {
    const below = { ...place, depth: place.depth + 1 }
    if (place.isElement) return not(this.compile(selector, below))
    return this.compile(selector, { ...below, isNegated: !place.isNegated })
  }

  #nested(operator: '$elemMatch' | '$allMatch' | '$keyMapMatch', arg: object, place: Place): Predicate {
    const { compare } = valuePlace(place)
    const below = { ...this.root, isElement: true, isRoot: false, depth: place.depth + 1, compare }
    const inner = this.compile(arg, below)
    const matches = this.#looking(inner)
    const found: Predicate = {
      $elemMatch: (value: unknown) => Array.isArray(value) && value.some(matches),
      $allMatch: (value: unknown) => Array.isArray(value) && value.length > 0 && value.every(matches),
      $keyMapMatch: (value: unknown) => isJsonObject(value) && this.#keysOf(value).some(matches),
    }[operator]
    return place.isNegated ? not(found) : found
  }

  #keysOf(value: object): readonly string[] {
    const keys = Object.keys(value)
    this.budget.spend(keys.length * LOOK)
    return keys
  }

  #looking(matches: Predicate, looks = 1): Predicate {
    return (value) => {
      this.budget.spend(looks * LOOK)
      return matches(value)
    }
  }

  #condition(operator: string, arg: unknown, place: Place): Predicate {
    if (operator === '$exists') return this.#exists(arg, place)
    const { compare } = valuePlace(place)
    return this.#ofField(compileCondition(operator, arg, compare, place.isNegated, this.budget.spend), place)
  }

  #exists(arg: unknown, place: Place): Predicate {
    if (typeof arg !== 'boolean') throw badArgument('$exists', arg)
    const mustExist = arg !== place.isNegated
    if (mustExist) return this.#ofField(() => true, place)
    const path = this.#pathOf(place)
    return this.#looking((value) => valueAt(value, path) === ABSENT, path.length)
  }

  /** The condition, asked of the place's field where that is there. */
  #ofField(condition: Predicate, place: Place): Predicate {
    const path = this.#pathOf(place)
    if (path.length === 0) return this.#looking(condition)
    const matches: Predicate = (value) => {
      const found = valueAt(value, path)
      return found !== ABSENT && found !== NO_WAY && condition(found)
    }
    return this.#looking(matches, path.length)
  }

  #pathOf({ field, isRoot }: Place): readonly string[] {
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

/** Ids are compared by their bytes, as everywhere. */
function valuePlace(place: Place): Place {
  return place.field === '_id' ? { ...place, compare: compareRaw } : place
}

function tooLarge(why: string): CouchError {
  return new CouchError('invalid_selector', `Selector error: ${why}`)
}
