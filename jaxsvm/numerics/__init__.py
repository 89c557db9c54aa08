"""Numerically robust float32 arithmetic in forms that XLA compiles well.

It is the only place that sets matmul precision.
"""

from .batching import any_under_vmap as any_under_vmap
from .batching import map_on_cpu as map_on_cpu
from .batching import map_sharing as map_sharing
from .centring import CentredRows as CentredRows
from .centring import centre as centre
from .centring import centred as centred
from .centring import centred_pair as centred_pair
from .centring import distances as distances
from .centring import needs_subtraction as needs_subtraction
from .centring import offset as offset
from .centring import sqdist as sqdist
from .centring import sqdist_of as sqdist_of
from .counts import add_counts as add_counts
from .counts import multiply_counts as multiply_counts
from .counts import narrow_count as narrow_count
from .counts import split_count as split_count
from .counts import sum_counts as sum_counts
from .counts import times_count as times_count
from .dependence import depends_on as depends_on
from .double import in_double as in_double
from .fork import jax_has_started as jax_has_started
from .golden import golden_section as golden_section
from .gram_updates import WeightedGram as WeightedGram
from .gram_updates import no_gram as no_gram
from .gram_updates import update_gram as update_gram
from .hashing import hash32 as hash32
from .hashing import multiply_high as multiply_high
from .means import running_mean as running_mean
from .normal_equations import affine as affine
from .normal_equations import affine_transpose as affine_transpose
from .normal_equations import cholesky as cholesky
from .normal_equations import preconditioner as preconditioner
from .normal_equations import solve_normal as solve_normal
from .normal_equations import sparsely_weighted_gram as sparsely_weighted_gram
from .normal_equations import symmetric as symmetric
from .normal_equations import system_for as system_for
from .packing import packed_by_reference as packed_by_reference
from .padding import pad_rows as pad_rows
from .products import accum_dtype as accum_dtype
from .products import add_rows as add_rows
from .products import blocked as blocked
from .products import cross_products as cross_products
from .products import differences as differences
from .products import dot as dot
from .products import fold_rows as fold_rows
from .products import l1_distances as l1_distances
from .products import sqnorms as sqnorms
from .reductions import argmax_value as argmax_value
from .reductions import count as count
from .reductions import fast_max as fast_max
from .reductions import fast_min as fast_min
from .reductions import gather as gather
from .reductions import index_row as index_row
from .reductions import is_traced as is_traced
from .reductions import norm as norm
from .reductions import pairwise_sum as pairwise_sum
<<<<<<< HEAD
from .reductions import power_of_two as power_of_two
=======
from .reductions import rounding_of_sums as rounding_of_sums
>>>>>>> w39/solvers
from .reductions import sample_proportional as sample_proportional
from .reductions import scatter_set as scatter_set
from .reductions import top_k_index as top_k_index
from .reductions import two_sum as two_sum
from .shards import in_mesh_of as in_mesh_of
from .shards import map_shards as map_shards
from .shards import mesh_of as mesh_of
from .shards import on_one_device as on_one_device
from .shards import shards as shards
from .shards import split_rows as split_rows
from .sparse_products import pack_rows as pack_rows
from .water_filling import WaterFill as WaterFill
from .water_filling import one_level as one_level
from .water_filling import two_levels as two_levels
from .water_filling import water_level as water_level
