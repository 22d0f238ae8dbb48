/**
 * Lint rules of the house: one statement does one thing. Two values that are assigned at once, or an
 * assignment inside another expression, make the reader align positions or look twice.
 */

/** Places where an assignment or an increment is a statement of its own. */
const STATEMENTS = new Set(['ExpressionStatement', 'ForStatement']);

function isStatement(node) {
  const { parent } = node;
  if (parent.type === 'ForStatement') return parent.test !== node;
  // `(a = 1, b = 2)` is held by `no-sequences`.
  return STATEMENTS.has(parent.type);
}

const noAssignmentInExpression = {
  create(context) {
    const check = (node) => {
      if (isStatement(node)) return;
      const message = 'Write the assignment as a statement of its own.';
      context.report({ node, message });
    };
    return { AssignmentExpression: check, UpdateExpression: check };
  },
};

/** Whether an array literal is taken apart as soon as it is written. */
function isPaired(pattern, value) {
  return (
    pattern.type === 'ArrayPattern' &&
    value?.type === 'ArrayExpression' &&
    pattern.elements.length > 1
  );
}

const noPairedDestructuring = {
  create(context) {
    const message = 'Write one declaration or assignment for each value.';
    return {
      VariableDeclarator(node) {
        if (isPaired(node.id, node.init)) context.report({ node, message });
      },
      AssignmentExpression(node) {
        if (isPaired(node.left, node.right)) context.report({ node, message });
      },
    };
  },
};

/** A default that throws hides a check in a parameter list. */
const noThrowingDefault = {
  create(context) {
    const message = 'Check for the missing value in a statement of its own.';
    return {
      AssignmentPattern(node) {
        const call =
          node.right.type === 'CallExpression'
            ? node.right.callee.name
            : undefined;
        if (
          call !== undefined &&
          /^(?:fail|refuse|throw|unknown|missing)/.test(call)
        ) {
          context.report({ node, message });
        }
      },
    };
  },
};

export default {
  meta: { name: 'house' },
  rules: {
    'no-assignment-in-expression': noAssignmentInExpression,
    'no-paired-destructuring': noPairedDestructuring,
    'no-throwing-default': noThrowingDefault,
  },
};
