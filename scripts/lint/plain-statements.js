/**
 * Lint rules of this project: one statement does one thing. Assigning two values at once,
 * or assigning inside another expression, makes the reader match up positions or look
 * twice.
 */

/** Places where an assignment or an increment is a statement of its own. */
const STATEMENTS = new Set(['ExpressionStatement', 'ForStatement']);

function isStatement(node) {
  const { parent } = node;
  if (parent.type === 'ForStatement') return parent.test !== node;
  // The rule `no-sequences` forbids `(a = 1, b = 2)`.
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

/** Whether an array literal is destructured in the same statement. */
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

/** Forbids a default that throws, because it hides a check in a parameter list. */
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
